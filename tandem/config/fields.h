#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/config/run_config.h"

namespace tandem {

/// A setting as recipes, flags, help and checks see it. Made from the describe() of the
/// struct that has it.
struct FieldBase {
  enum class Type { text, whole, real, boolean, choice };
  // A value of a choice, or a word that a number may also be.
  struct Word {
    std::string name;
    std::string help;
  };

  const char* section = "";
  // Its recipe key; its flag has dashes for underscores.
  std::string name;
  Type type = Type::text;
  // In the order of help, which lists those of a choice at_the_end() after all
  // settings.
  std::vector<Word> words;
  bool words_at_the_end = false;

  // Of numbers, ends included.
  double least = 0;
  double most = 0;
  std::optional<double> unset;

  // What it belongs to, such as "sgd"; "" for all.
  std::string of;
  // The setting that decides whether it means something; "": it always does.
  std::string needs;

  ResumeRule kept = ResumeRule::no;
  // May differ from host to host.
  bool local = false;
  // About one start of a run, not about the run.
  bool of_one_start = false;
  // Whether it is a template (line_format.h).
  bool line_template = false;
  // Further flags, such as "--micro-batches".
  std::vector<std::string> other_flags;
  // A key that recipes had before and that is still read; "" for none.
  std::string old_name;

  // Of choices with values that are no word: a regular expression for all.
  std::string pattern;
  // Of choices: what to do for a value that there is not; "" for nothing.
  std::string alternative;

  // What describe() says of it.
  std::string what;

  /// "--batch-size".
  std::string flag() const;
  /// All that help says of it: what it is, what it belongs to, and its words.
  std::string help() const;
  bool is_number() const {
    return type == Type::whole || type == Type::real;
  }
};

/// A setting with access to its value in an Owner: RunConfig, or the options of a part.
template <typename Owner>
struct FieldOf : FieldBase {
  // Whether it means something with the setting `needs`; empty: always.
  std::function<bool(const Owner&)> has_meaning;
  // The value, as text without quotes.
  std::function<std::string(const Owner&)> text;
  // Of numbers and words that stand for one.
  std::function<double(const Owner&)> number;
  // False when the text is not of its type.
  std::function<bool(Owner&, const std::string&)> assign;
  std::function<void(Owner& to, const Owner& from)> copy;
};

using Field = FieldOf<RunConfig>;
const std::vector<Field>& config_fields();

/// The field of a name, with dashes or underscores. Throws ConfigError (naming
/// the nearest); `where` says what to change, for instance "recipe.toml:3".
const Field& find_field(const std::string& name, const std::string& where);

/// Sets a field from text. Throws ConfigError when the text is not one of its values.
void set_field(
    RunConfig& config, const Field& field, const std::string& text,
    const std::string& where);

/// The value as a recipe writes it.
std::string to_toml(const RunConfig& config, const Field& field);

/// Throws ConfigError for what is wrong with the settings alone: a number out of range,
/// or a setting that means nothing beside the others.
void check_fields(const RunConfig& config);

/// The same for the options of a part: OptimizerOptions, LrScheduleOptions or
/// StrategyOptions.
template <typename Options>
void check_options(const Options& options);

}  // namespace tandem
