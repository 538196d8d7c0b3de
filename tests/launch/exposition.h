#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>

#include "tandem/base/text.h"

namespace tandem {

/// Values of the samples in a text of Prometheus' format 0.0.4. The key is the name
/// with the labels as they are written, such as `up{job="a"}`.
using MetricSamples = std::map<std::string, double>;

/// Strict parser of Prometheus' format 0.0.4, for one text. It accepts only counters
/// and gauges.
class ExpositionParser {
 public:
  /// Throws std::runtime_error for the first line that breaks a rule of the format.
  MetricSamples parse(const std::string& text) {
    check(!text.empty() && text.back() == '\n', "no newline at the end", text);
    for (const auto& line : split(text, '\n')) {
      read(line);
    }
    return samples_;
  }

 private:
  static void check(bool holds, const std::string& rule, const std::string& line) {
    if (!holds) {
      throw std::runtime_error(rule + ": " + line);
    }
  }

  void read(const std::string& line) {
    static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
    static const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge)");
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      check(families_.insert(match[1]).second, "a family appears twice", line);
      family_ = match[1];
      has_type_ = false;
    } else if (std::regex_match(line, match, type)) {
      check(match[1] == family_ && !has_type_, "TYPE does not follow HELP", line);
      const bool total = std::regex_match(family_, std::regex(".*_total"));
      check(total == (match[2] == "counter"), "only counters end with _total", line);
      has_type_ = true;
    } else {
      read_sample(line);
    }
  }

  void read_sample(const std::string& line) {
    static const std::string label =
        R"re([a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")re";
    static const std::regex form(
        "([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{" + label + "(?:," + label +
        ")*\\})? (NaN|[+-]Inf|-?[0-9][0-9.e+-]*)");
    std::smatch match;
    check(std::regex_match(line, match, form), "not a sample", line);
    check(match[1] == family_ && has_type_, "no HELP and TYPE before", line);
    const std::string value = match[3];
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    check(*end == '\0', "not a number", line);
    const std::string key = match[1].str() + match[2].str();
    check(samples_.emplace(key, number).second, "a sample appears twice", line);
  }

  std::set<std::string> families_;
  std::string family_;
  bool has_type_ = false;
  MetricSamples samples_;
};

/// Parses a text. Fails the test if the text breaks a rule of the format.
inline MetricSamples samples_of(const std::string& text) {
  try {
    return ExpositionParser().parse(text);
  } catch (const std::runtime_error& error) {
    ADD_FAILURE() << error.what();
    return {};
  }
}

}  // namespace tandem
