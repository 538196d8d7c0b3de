#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

/// A value of a setting, with its name in recipes and flags.
template <typename E>
struct Choice {
  E value;
  const char* name;
  const char* help = "";
};

/// Table of an enum's values. Each enum that is a setting has a specialization, with a
/// member `static constexpr Row rows[]`. Row is Choice<E>, or a struct with the members
/// of Choice<E> and further traits. The first row of a value has the value's name;
/// later rows of the same value are aliases.
template <typename E>
struct Choices;

/// Returns the row of a value in Choices<E>::rows. If the value has aliases, returns
/// its first row, which has its name.
template <typename E>
constexpr const auto& row_of(E value) {
  for (const auto& row : Choices<E>::rows) {
    if (row.value == value) {
      return row;
    }
  }
  throw std::logic_error("an enumerator without a row");
}

/// Type that stands for one enumerator. A function that takes it has an overload for
/// each kind, which the kind's source file defines. For example, optim/sgd.cpp defines
/// make_algorithm(KindTag<OptimizerKind::sgd>, ...). The callers declare the overloads
/// in a template, so no list names them, and a kind without an overload is a link
/// error. (Specializations of a template would have to be declared before their use,
/// and so in a list.)
template <auto kind>
using KindTag = std::integral_constant<decltype(kind), kind>;

template <typename E, typename Call, size_t... i>
auto with_kind(E kind, const Call& call, std::index_sequence<i...>) {
  constexpr auto& rows = Choices<E>::rows;
  using Result = decltype(call(KindTag<rows[0].value>()));
  constexpr Result (*calls[])(const Call&) = {
      [](const Call& of) -> Result { return of(KindTag<rows[i].value>()); }...};
  return calls[&row_of(kind) - rows](call);
}

/// Calls `call` with the KindTag of `kind`, and returns the result. Its type must not
/// depend on the kind.
template <typename E, typename Call>
auto with_kind(E kind, const Call& call) {
  return with_kind(kind, call, std::make_index_sequence<std::size(Choices<E>::rows)>());
}

/// Returns the row in `rows` whose member `kind` equals the argument `kind`.
template <typename Rows, typename E>
constexpr const auto& row_of_kind(const Rows& rows, E kind) {
  for (const auto& row : rows) {
    if (row.kind == kind) {
      return row;
    }
  }
  throw std::logic_error("a kind without a row");
}

/// Returns whether a row is an alias, which means that an earlier row has the same
/// value.
template <typename Row>
constexpr bool is_alias(const Row& row) {
  return &row != &row_of(row.value);
}

/// Returns the name of a value.
template <typename E>
constexpr const char* name_of(E value) {
  return row_of(value).name;
}

/// Returns the value whose name or alias is `name`; nullopt if there is none.
template <typename E>
std::optional<E> find_choice(const std::string& name) {
  for (const auto& row : Choices<E>::rows) {
    if (name == row.name) {
      return row.value;
    }
  }
  return std::nullopt;
}

/// Returns all values with name and help, without aliases.
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

/// Returns the names of all values, without aliases.
template <typename E>
std::vector<std::string> choice_names() {
  std::vector<std::string> names;
  for (const auto& choice : choices<E>()) {
    names.emplace_back(choice.name);
  }
  return names;
}

/// Returns the error for a name that is not in `names`. The message suggests the most
/// similar name. `where` is the flag or line, such as "--sync" or "recipe.toml:3:
/// sync". If `alternative` is not empty, the message offers it in addition to the
/// names.
inline ConfigError unknown_choice(
    const std::string& where, const std::string& name,
    const std::vector<std::string>& names, const std::string& alternative = "") {
  return ConfigError(
      "[config] " + where + " cannot be '" + name + "'" + did_you_mean(name, names) +
      "; choose one of " + join(names) +
      (alternative.empty() ? "" : ", or " + alternative));
}

/// Returns the value whose name or alias is `name`. Throws the error of
/// unknown_choice() if there is none.
template <typename E>
E parse_choice(const std::string& where, const std::string& name) {
  if (const auto value = find_choice<E>(name)) {
    return *value;
  }
  throw unknown_choice(where, name, choice_names<E>());
}

/// Upper limit of most integer settings.
constexpr double kMany = 1e12;
/// Smallest and largest positive value of most real settings. In float32, the values
/// between these limits are neither 0 nor infinite.
constexpr double kTiny = 1e-37;
constexpr double kLarge = 1e37;

/// Rule for changing a setting in a resumed run (checkpoint/resume_settings.h).
enum class ResumeRule {
  // All changes are allowed.
  no,
  // The value must not change.
  value,
  // The value may change, but not from the default to another value or back. Example: a
  // run without momentum cannot be resumed with momentum.
  whether_default,
  // The value must not change, but it may be left empty.
  value_or_empty,
};

}  // namespace tandem
