#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/text.h"
#include "tandem/config/options/setting.h"

namespace tandem {

/// Means or standard deviations of a data set: one number, or one for each channel or
/// column.
class ChannelValues {
 public:
  enum class Kind { standard, measured, given };

  ChannelValues() = default;
  ChannelValues(double value)  // NOLINT(google-explicit-constructor)
      : ChannelValues(std::vector<double>{value}) {}
  ChannelValues(std::vector<double> values)  // NOLINT(google-explicit-constructor)
      : kind_(Kind::given), values_(std::move(values)) {}

  Kind kind() const {
    return kind_;
  }
  /// Returns the numbers; empty if kind() is not `given`.
  const std::vector<double>& values() const {
    return values_;
  }

  /// Returns the name of the kind, or the numbers with commas between them if the kind
  /// is `given`.
  std::string text() const;

  /// Parses a result of text(). Returns nullopt for any other text.
  static std::optional<ChannelValues> parse(const std::string& text);

 private:
  Kind kind_ = Kind::standard;
  std::vector<double> values_;
};

// Without `given`, whose values are numbers.
template <>
struct Choices<ChannelValues::Kind> {
  static constexpr Choice<ChannelValues::Kind> rows[] = {
      {ChannelValues::Kind::standard, "default",
       "MNIST's values for IDX and CIFAR-10 files, otherwise auto"},
      {ChannelValues::Kind::measured, "auto", "measured on the training part"}};
};

inline std::string ChannelValues::text() const {
  if (kind_ != Kind::given) {
    return name_of(kind_);
  }
  std::vector<std::string> texts;
  for (const double value : values_) {
    texts.push_back(float_text(value));
  }
  return join(texts, ",");
}

inline std::optional<ChannelValues> ChannelValues::parse(const std::string& text) {
  if (const auto kind = find_choice<Kind>(text)) {
    ChannelValues word;
    word.kind_ = *kind;
    return word;
  }
  std::vector<double> values;
  for (const auto& part : split(text, ',')) {
    const auto value = parse_number<double>(part);
    if (!value) {
      return std::nullopt;
    }
    values.push_back(*value);
  }
  return values.empty() ? std::nullopt : std::optional(ChannelValues(values));
}

}  // namespace tandem
