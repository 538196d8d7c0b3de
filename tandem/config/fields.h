#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/config/run_config.h"

namespace tandem {

/// A setting in recipes, flags, help and checks. It is made by describe() of the struct
/// that holds the value.
struct FieldBase {
  enum class Type { text, whole, real, boolean, choice };
  // A value of a choice, or a word in place of a number.
  struct Word {
    std::string name;
    std::string help;
  };

  const char* section = "";
  // Recipe key; the flag has dashes instead of underscores.
  std::string name;
  Type type = Type::text;
  // In the order of help.
  std::vector<Word> words;
  // Help lists the words after all settings.
  bool words_at_the_end = false;

  // Range of a number, limits included.
  double least = 0;
  double most = 0;
  // Number outside the range that stands for the optimizer's default.
  std::optional<double> unset;

  // Values that use the setting, such as "sgd"; "": all.
  std::string of;
  // Setting with these values, such as "optimizer"; "": the setting is always used.
  std::string needs;

  ResumeRule kept = ResumeRule::no;
  // The value may differ between hosts.
  bool local = false;
  // The value belongs to one start of a run, not to the run.
  bool of_one_start = false;
  // The value is a template (line_format.h).
  bool line_template = false;
  // Further flags, such as "--micro-batches".
  std::vector<std::string> other_flags;
  // Former recipe key, which is still read; "" for none.
  std::string old_name;

  // Regular expression of all values, for choices with values that are no word.
  std::string pattern;
  // Advice in the error about an unknown value of a choice; "" for none.
  std::string alternative;

  // The description that describe() passes.
  std::string what;

  /// Returns the flag, such as "--batch-size".
  std::string flag() const;
  /// Returns the help text: description, the values that use the setting, and its
  /// words.
  std::string help() const;
  bool is_number() const {
    return type == Type::whole || type == Type::real;
  }
};

/// A setting with access to its value in an Owner: RunConfig or one of its structs.
template <typename Owner>
struct FieldOf : FieldBase {
  // Returns whether the value of `needs` uses the setting; empty: always.
  std::function<bool(const Owner&)> has_meaning;
  // Returns the value as text without quotes.
  std::function<std::string(const Owner&)> text;
  // Returns the value of a number, or the number that its word stands for.
  std::function<double(const Owner&)> number;
  // Sets the value from text; returns false if the text is not of the type.
  std::function<bool(Owner&, const std::string&)> assign;
  std::function<void(Owner& to, const Owner& from)> copy;
};

using Field = FieldOf<RunConfig>;

/// Returns all settings, in the order of help.
const std::vector<Field>& config_fields();

/// Returns the setting with a name or former name, with dashes or underscores. Throws
/// ConfigError with the nearest name; `where` is its source, such as "recipe.toml:3".
const Field& find_field(const std::string& name, const std::string& where);

/// Sets a field from text. Throws ConfigError if the text is not a value of the field.
void set_field(
    RunConfig& config, const Field& field, const std::string& text,
    const std::string& where);

/// Returns the value in the form of a recipe.
std::string to_toml(const RunConfig& config, const Field& field);

/// Checks ranges of numbers, and that no setting is set that the values of other
/// settings do not use. Throws ConfigError.
void check_fields(const RunConfig& config);

/// Checks one struct in the same way: OptimizerOptions, LrScheduleOptions or
/// StrategyOptions.
template <typename Options>
void check_options(const Options& options);

}  // namespace tandem
