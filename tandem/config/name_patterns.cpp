#include "tandem/config/name_patterns.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/config/options/setting.h"

namespace tandem {

namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::string flag_of(std::string setting) {
  std::replace(setting.begin(), setting.end(), '_', '-');
  return "--" + setting;
}

[[noreturn]] void refuse_entry(
    const std::string& setting, const std::string& entry, const std::string& expected) {
  throw ConfigError(fmt::format(
      "[config] {} has the entry '{}', expected {}; change {}", setting, entry,
      expected, flag_of(setting)));
}

// Returns the names, and the patterns "layer1.*" and "layer1.0.*" of the modules of
// "layer1.0.weight".
std::vector<std::string> with_modules(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const auto& name : names) {
    for (size_t dot = name.find('.'); dot != std::string::npos;
         dot = name.find('.', dot + 1)) {
      all.push_back(name.substr(0, dot) + ".*");
    }
  }
  all.insert(all.end(), names.begin(), names.end());
  return all;
}

}  // namespace

NamePatterns parse_patterns(const std::string& setting, const std::string& text) {
  // A comma at the end has an empty entry after it, which split() does not return.
  const bool open = !text.empty() && text.back() == ',';
  auto patterns = split(text, ',');
  if (open || std::find(patterns.begin(), patterns.end(), "") != patterns.end()) {
    refuse_entry(setting, "", "a pattern of names, such as 'layer1.*'");
  }
  return patterns;
}

std::vector<PatternFactor> parse_pattern_factors(
    const std::string& setting, const std::string& text) {
  std::vector<PatternFactor> factors;
  for (const auto& entry : parse_patterns(setting, text)) {
    const size_t equals = entry.rfind('=');
    const auto factor = equals == std::string::npos
                            ? std::nullopt
                            : parse_number<double>(entry.substr(equals + 1));
    if (equals == 0 || !factor || *factor < 0 || *factor > kLarge) {
      refuse_entry(
          setting, entry,
          "PATTERN=FACTOR with a factor of 0 or more, such as 'fc.*=0.1'");
    }
    factors.push_back({entry.substr(0, equals), *factor});
  }
  return factors;
}

NamePatterns patterns_of(const std::vector<PatternFactor>& factors) {
  NamePatterns patterns;
  for (const auto& entry : factors) {
    patterns.push_back(entry.pattern);
  }
  return patterns;
}

bool matches_any(const NamePatterns& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
    return matches(pattern, name);
  });
}

double factor_of(const std::vector<PatternFactor>& factors, const std::string& name) {
  const auto found = std::find_if(
      factors.begin(), factors.end(),
      [&](const auto& entry) { return matches(entry.pattern, name); });
  return found == factors.end() ? 1 : found->factor;
}

void check_patterns_match(
    const std::string& setting, const NamePatterns& patterns,
    const std::vector<std::string>& names, const std::string& kind) {
  for (const auto& pattern : patterns) {
    const bool used = std::any_of(names.begin(), names.end(), [&](const auto& name) {
      return matches(pattern, name);
    });
    if (!used) {
      throw ConfigError(fmt::format(
          "[model] {} has the pattern '{}', which matches no {}{}; change {}, or list "
          "the modules with 'tandem model'",
          setting, pattern, kind, did_you_mean(pattern, with_modules(names)),
          flag_of(setting)));
    }
  }
}

}  // namespace tandem
