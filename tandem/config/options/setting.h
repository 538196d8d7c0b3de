#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

/// One of the few values of a setting, under the name that recipes and flags use.
template <typename E>
struct Choice {
  E value;
  const char* name;
  const char* help = "";
};

/// Specialised beside each enum: `static constexpr Row rows[]`, where Row is Choice<E>
/// or has its members and further traits. A value's first row is its name; later ones
/// are other names that are understood too.
template <typename E>
struct Choices;

/// The row of a value, with its traits.
template <typename E>
constexpr const auto& row_of(E value) {
  for (const auto& row : Choices<E>::rows) {
    if (row.value == value) {
      return row;
    }
  }
  throw std::logic_error("an enumerator without a row");
}

/// Returns whether a row is a further name of its value.
template <typename Row>
constexpr bool is_alias(const Row& row) {
  return &row != &row_of(row.value);
}

template <typename E>
constexpr const char* name_of(E value) {
  return row_of(value).name;
}

template <typename E>
std::optional<E> find_choice(const std::string& name) {
  for (const auto& row : Choices<E>::rows) {
    if (name == row.name) {
      return row.value;
    }
  }
  return std::nullopt;
}

/// All values with name and help, without other names.
template <typename E>
std::vector<Choice<E>> choices() {
  std::vector<Choice<E>> all;
  for (const auto& row : Choices<E>::rows) {
    if (!is_alias(row)) {
      all.push_back({row.value, row.name, row.help});
    }
  }
  return all;
}

template <typename E>
std::vector<std::string> choice_names() {
  std::vector<std::string> names;
  for (const auto& choice : choices<E>()) {
    names.emplace_back(choice.name);
  }
  return names;
}

/// What to throw for a name that is not among `names`, with the nearest of them;
/// `where` says where it was given, such as "--sync" or "recipe.toml:3: sync";
/// `alternative` what else there is, or "".
inline ConfigError unknown_choice(
    const std::string& where, const std::string& name,
    const std::vector<std::string>& names, const std::string& alternative = "") {
  return ConfigError(
      "[config] " + where + " cannot be '" + name + "'" + did_you_mean(name, names) +
      "; choose one of " + join(names) +
      (alternative.empty() ? "" : ", or " + alternative));
}

/// The value of a name. Throws unknown_choice().
template <typename E>
E parse_choice(const std::string& where, const std::string& name) {
  if (const auto value = find_choice<E>(name)) {
    return *value;
  }
  throw unknown_choice(where, name, choice_names<E>());
}

// Common ends of ranges.
constexpr double kMany = 1e12;
// The smallest and largest that stay finite, and not 0, in float32.
constexpr double kTiny = 1e-37;
constexpr double kLarge = 1e37;

/// What a run that goes on must not change (checkpoint/resume_settings.h).
enum class ResumeRule {
  // It may change.
  no,
  // The value.
  value,
  // Whether it is the default.
  whether_default,
  // The value, which may also be left out.
  value_or_empty,
};

}  // namespace tandem
