#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Device on which a rank computes.
struct DeviceChoice {
  enum class Kind { automatic, cpu, cuda };
  // Value of `index` that selects a GPU by the local rank: its number is the local rank
  // modulo the number of GPUs of the host.
  static constexpr int kByLocalRank = -1;

  Kind kind = Kind::automatic;
  int index = kByLocalRank;

  std::string text() const;

  /// Parses "auto", "cpu", "cuda" or "cuda:INDEX". Returns nullopt for any other text.
  static std::optional<DeviceChoice> parse(const std::string& text);

  /// Returns the choices that help lists. cuda:0 represents all indices.
  static std::vector<Choice<Kind>> words();
  /// Regular expression that matches all names, for the JSON schema.
  static constexpr const char* kPattern = "^(auto|cpu|cuda(:[0-9]{1,4})?)$";
};

template <>
struct Choices<DeviceChoice::Kind> {
  static constexpr Choice<DeviceChoice::Kind> rows[] = {
      {DeviceChoice::Kind::automatic, "auto",
       "cuda if this build and the host have it and the run can use it, else cpu"},
      {DeviceChoice::Kind::cpu, "cpu"},
      {DeviceChoice::Kind::cuda, "cuda",
       "the GPU of the rank's number on its host, modulo the number of GPUs"}};
};

inline std::string DeviceChoice::text() const {
  const std::string name = name_of(kind);
  return index == kByLocalRank ? name : name + ":" + std::to_string(index);
}

inline std::optional<DeviceChoice> DeviceChoice::parse(const std::string& text) {
  constexpr size_t kMostDigits = 4;
  const auto colon = text.find(':');
  const auto kind = find_choice<Kind>(text.substr(0, colon));
  if (!kind || colon == std::string::npos) {
    return kind ? std::optional(DeviceChoice{*kind}) : std::nullopt;
  }
  const std::string digits = text.substr(colon + 1);
  const bool number = !digits.empty() && digits.size() <= kMostDigits &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  return number && *kind == Kind::cuda
             ? std::optional(DeviceChoice{*kind, std::stoi(digits)})
             : std::nullopt;
}

inline std::vector<Choice<DeviceChoice::Kind>> DeviceChoice::words() {
  auto all = choices<Kind>();
  all.push_back(
      {Kind::cuda, "cuda:0",
       "the GPU with this number; other numbers are also possible"});
  return all;
}

}  // namespace tandem
