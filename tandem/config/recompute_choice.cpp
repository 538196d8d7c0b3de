#include "tandem/config/recompute_choice.h"

#include <fmt/core.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr const char* kEvery = "every:";
constexpr const char* kAuto = "auto";

int64_t parse_memory(const std::string& text) {
  const std::string units = "KMGT";
  const size_t unit = text.empty() ? std::string::npos : units.find(text.back());
  const bool has_unit = unit != std::string::npos;
  const auto number =
      parse_number<double>(has_unit ? text.substr(0, text.size() - 1) : text);
  const double bytes =
      number ? *number * std::pow(1024, has_unit ? static_cast<double>(unit + 1) : 0)
             : 0;
  if (!(bytes >= 1 && bytes <= kMany * 1024)) {
    throw ConfigError(fmt::format(
        "[config] memory is '{}', expected a size such as 512M or 2G; change --memory",
        text));
  }
  return static_cast<int64_t>(bytes);
}

int64_t parse_every(const std::string& text) {
  const auto count = parse_number<int64_t>(text.substr(std::string(kEvery).size()));
  if (!count || *count < 1) {
    throw ConfigError(fmt::format(
        "[config] recompute is '{}', expected every:K with K of 1 or more layers; "
        "change --recompute",
        text));
  }
  return *count;
}

}  // namespace

RecomputeChoice recompute_choice(const ExecOptions& options) {
  const std::string& text = options.recompute;
  RecomputeChoice choice;
  if (text == kAuto && options.memory.empty()) {
    throw ConfigError(
        "[config] recompute is auto and memory is not set, expected the memory for the "
        "kept values of a micro-batch; add --memory, such as --memory 512M");
  }
  if (text != kAuto && !options.memory.empty()) {
    throw ConfigError(fmt::format(
        "[config] memory is '{}' and recompute is '{}', expected auto; add --recompute "
        "auto, or leave --memory out",
        options.memory, text));
  }
  if (text == kAuto) {
    choice.memory = parse_memory(options.memory);
  } else if (text.rfind(kEvery, 0) == 0) {
    choice.every = parse_every(text);
  } else {
    choice.patterns = parse_patterns("recompute", text);
  }
  return choice;
}

}  // namespace tandem
