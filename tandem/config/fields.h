#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/config/run_config.h"

namespace tandem {

/// Description of a setting, from which recipe keys, flags, help and checks are
/// derived, with functions that access its value in a RunConfig. It is created by
/// describe() of the options struct that contains the setting.
struct Field {
  enum class Type { text, whole, real, boolean, choice, numbers };
  // A named value: a value of a choice, or a word that represents a number, such as
  // "auto".
  struct Word {
    std::string name;
    std::string help;
  };

  const char* section = "";
  // Recipe key; the flag has dashes instead of underscores.
  std::string name;
  Type type = Type::text;
  // Named values, in the order in which help lists them.
  std::vector<Word> words;
  // True: help lists the words after all settings.
  bool words_at_the_end = false;

  // Range of a number, limits included.
  double least = 0;
  double most = 0;
  // Number outside the range that selects the optimizer's default; nullopt if there is
  // none.
  std::optional<double> unset;
  // Default of earlier releases, which check_fields() accepts even if the setting has
  // no effect; nullopt if there is none.
  std::optional<double> former_default;

  // For help: values of another setting, such as "sgd". This setting has an effect only
  // with these values. "" if it always has an effect.
  std::string of;
  // Name of the setting whose values `of` lists, such as "optimizer". If "",
  // check_fields() does not check whether this setting has an effect.
  std::string needs;

  ResumeRule kept = ResumeRule::no;
  // True if the value may differ between hosts.
  bool local = false;
  // True if the value applies to one start of a run, not to the whole run.
  bool of_one_start = false;
  // True if the value is a template (line_format.h).
  bool line_template = false;
  // Further flags, such as "--micro-batches".
  std::vector<std::string> other_flags;
  // Former recipe key, which is still accepted; "" for none.
  std::string old_name;

  // Regular expression that matches all values of a choice that are not in `words`; ""
  // if there are no such values. It may also match values in `words`.
  std::string pattern;
  // Endings of the paths that are values of a choice, such as ".pt2"; empty if no path
  // is a value. The path may differ between hosts, and a resumed run may have another
  // path.
  std::vector<std::string> file_endings;
  // Advice in the error about an unknown value of a choice; "" for none.
  std::string alternative;

  // Description of the setting, for help.
  std::string what;

  // Returns whether the setting has an effect with the current value of the setting
  // `needs`. Empty: the setting always has an effect.
  std::function<bool(const RunConfig&)> has_meaning;
  // Returns the value as text without quotes.
  std::function<std::string(const RunConfig&)> text;
  // For has_numbers(): returns the numbers of the value. For a word of a numeric
  // setting, returns the number that the word represents.
  std::function<std::vector<double>(const RunConfig&)> numbers;
  // Sets the value from text. Returns false if the text is not of the setting's type.
  std::function<bool(RunConfig&, const std::string&)> assign;
  std::function<void(RunConfig& to, const RunConfig& from)> copy;

  /// Returns the flag, such as "--batch-size".
  std::string flag() const;
  /// Returns the help text: description, values with which the setting has an effect,
  /// and words.
  std::string help() const;
  /// Returns the names of `words`.
  std::vector<std::string> word_names() const;
  /// Returns whether a value is a path that ends with one of `file_endings`.
  bool is_path(const std::string& value) const;
  /// Returns whether recipes have the value in quotes.
  bool is_text() const {
    return type == Type::text || type == Type::choice;
  }
  bool is_number() const {
    return type == Type::whole || type == Type::real;
  }
  /// Returns whether a value is a number, or several numbers.
  bool has_numbers() const {
    return is_number() || type == Type::numbers;
  }
};

/// Returns all settings, in the order of help.
const std::vector<Field>& config_fields();

/// Returns the setting with a name or former name, with dashes or underscores. If there
/// is no such setting, throws ConfigError, which suggests the most similar name.
/// `where` is the location of the name in the error, such as "recipe.toml:3".
const Field& find_field(const std::string& name, const std::string& where);

/// Sets a field from text. Throws ConfigError with `where` if the text does not have
/// the field's type or is not one of its choices. check_fields() checks ranges.
void set_field(
    RunConfig& config, const Field& field, const std::string& text,
    const std::string& where);

/// Returns the value of a field in TOML syntax.
std::string to_toml(const RunConfig& config, const Field& field);

/// Throws ConfigError if a number is out of range. Also throws it if a setting has a
/// value other than the default, but has no effect with the value of the setting that
/// it needs (Field::needs).
void check_fields(const RunConfig& config);

/// Checks the settings of one struct, as check_fields() does.
void check_options(const OptimizerOptions& options);
void check_options(const LrScheduleOptions& options);
void check_options(const StrategyOptions& options);

/// Returns the names and values of all settings for data. The texts of equal options
/// are equal.
[[nodiscard]] std::string settings_text(const DataOptions& options);

}  // namespace tandem
