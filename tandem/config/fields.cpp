#include "tandem/config/fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/config/foreign_flags.h"
#include "tandem/config/line_format.h"

namespace tandem {

namespace {

std::string with(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

bool ends_with_one_of(
    const std::vector<std::string>& endings, const std::string& path) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) {
    return path != ending && ends_with(path, ending);
  });
}

// Result of Table::add(), with which describe() adds further properties to a field of
// `part`.
template <typename Part>
class Row {
 public:
  Row(Field& field, Part RunConfig::*part) : field_(field), part_(part) {}

  Row& between(double least, double most) {
    field_.least = least;
    field_.most = most;
    return *this;
  }
  Row& or_unset(double value) {
    field_.unset = value;
    return *this;
  }
  // Releases before `unset` existed had this default, which their config.toml has for
  // every optimizer.
  Row& formerly_unset(double value) {
    field_.former_default = value;
    return *this;
  }
  Row& or_word(const char* word, double value, const char* help = "") {
    field_.words.push_back({word, help});
    const std::string name = word;
    // Rejects the number that the word stands for; only the word selects it.
    field_.assign = [=, assign = field_.assign, numbers = field_.numbers](
                        RunConfig& config, const std::string& given) {
      return given == name ? assign(config, std::to_string(static_cast<int64_t>(value)))
                           : assign(config, given) && numbers(config).front() != value;
    };
    field_.text = [=, text = field_.text,
                   numbers = field_.numbers](const RunConfig& config) {
      return numbers(config).front() == value ? name : text(config);
    };
    return *this;
  }
  // The field does not accept this word of its type.
  Row& without(const std::string& word) {
    auto& words = field_.words;
    words.erase(std::find_if(words.begin(), words.end(), [&](const auto& other) {
      return other.name == word;
    }));
    field_.assign = [=, assign = field_.assign](
                        RunConfig& config, const std::string& given) {
      return given != word && assign(config, given);
    };
    return *this;
  }
  // Paths with these endings are values too. A path is stored in `path`, and `member`
  // then has the value `file`, whose name is not a value of the field.
  template <typename E>
  Row& or_file(
      E Part::*member, E file, std::string Part::*path,
      std::initializer_list<const char*> endings) {
    field_.file_endings.assign(endings.begin(), endings.end());
    for (const auto& ending : field_.file_endings) {
      field_.pattern += (field_.pattern.empty() ? "" : "|") + ("\\" + ending) + "$";
    }
    const std::string name = name_of(file);
    auto& words = field_.words;
    words.erase(std::find_if(words.begin(), words.end(), [&](const auto& word) {
      return word.name == name;
    }));
    field_.assign = [=, part = part_, paths = field_.file_endings,
                     assign = field_.assign](
                        RunConfig& config, const std::string& given) {
      const bool is_path = ends_with_one_of(paths, given);
      if (!is_path && (given == name || !assign(config, given))) {
        return false;
      }
      if (is_path) {
        config.*part.*member = file;
      }
      config.*part.*path = is_path ? given : "";
      return true;
    };
    field_.text = [=, part = part_, text = field_.text](const RunConfig& config) {
      return config.*part.*member == file ? config.*part.*path : text(config);
    };
    field_.copy = [=, part = part_](RunConfig& to, const RunConfig& from) {
      to.*part.*member = from.*part.*member;
      to.*part.*path = from.*part.*path;
    };
    return *this;
  }
  // The field has an effect only with these values of `setting`, which is in `member`.
  template <typename E>
  Row& needs(const char* setting, E Part::*member, const std::vector<E>& wanted) {
    field_.needs = setting;
    std::vector<std::string> names;
    for (const E value : wanted) {
      names.emplace_back(name_of(value));
    }
    of(join(names));
    field_.has_meaning = [part = part_, member, wanted](const RunConfig& config) {
      const E value = config.*part.*member;
      return std::find(wanted.begin(), wanted.end(), value) != wanted.end();
    };
    return *this;
  }
  // Sets Field::of, a text for help. Unlike with needs(), the field may be set even
  // if it has no effect.
  Row& of(const std::string& what) {
    field_.of = what;
    return *this;
  }
  Row& kept(ResumeRule kept = ResumeRule::value) {
    field_.kept = kept;
    return *this;
  }
  Row& local() {
    field_.local = true;
    return *this;
  }
  Row& of_one_start() {
    field_.of_one_start = true;
    return *this;
  }
  Row& alternative(const char* advice) {
    field_.alternative = advice;
    return *this;
  }
  Row& line_template() {
    field_.line_template = true;
    return *this;
  }
  Row& at_the_end() {
    field_.words_at_the_end = true;
    return *this;
  }
  Row& also(std::initializer_list<const char*> flags) {
    field_.other_flags.assign(flags.begin(), flags.end());
    return *this;
  }
  // Makes the field also accept a former key and its flag.
  Row& formerly(const char* name) {
    field_.old_name = name;
    field_.other_flags.push_back("--" + with(name, '_', '-'));
    return *this;
  }

 private:
  Field& field_;
  Part RunConfig::*part_;
};

template <typename Value>
constexpr Field::Type type_of() {
  if constexpr (std::is_same_v<Value, bool>) {
    return Field::Type::boolean;
  } else if constexpr (std::is_enum_v<Value> || std::is_same_v<Value, DeviceChoice>) {
    return Field::Type::choice;
  } else if constexpr (std::is_same_v<Value, ChannelValues>) {
    return Field::Type::numbers;
  } else if constexpr (std::is_floating_point_v<Value>) {
    return Field::Type::real;
  } else {
    return std::is_integral_v<Value> ? Field::Type::whole : Field::Type::text;
  }
}

template <typename Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<Value>) {
    return name_of(value);
  } else if constexpr (std::is_floating_point_v<Value>) {
    return float_text(value);
  } else if constexpr (std::is_integral_v<Value>) {
    return std::to_string(value);
  } else if constexpr (
      std::is_same_v<Value, DeviceChoice> || std::is_same_v<Value, ChannelValues>) {
    return value.text();
  } else {
    return value;
  }
}

template <typename Value>
std::optional<Value> value_of(const std::string& text) {
  if constexpr (std::is_same_v<Value, bool>) {
    return text == "true"    ? std::optional(true)
           : text == "false" ? std::optional(false)
                             : std::nullopt;
  } else if constexpr (std::is_enum_v<Value>) {
    return find_choice<Value>(text);
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return parse_number<Value>(text);
  } else if constexpr (
      std::is_same_v<Value, DeviceChoice> || std::is_same_v<Value, ChannelValues>) {
    return Value::parse(text);
  } else {
    return text;
  }
}

// Sets type, functions and named values of a field. `at` returns a reference to the
// field's value in a RunConfig.
template <typename Value, typename At>
void give_access(Field& field, At at) {
  field.type = type_of<Value>();
  field.text = [at](const RunConfig& config) { return text_of<Value>(at(config)); };
  field.assign = [at](RunConfig& config, const std::string& text) {
    const auto value = value_of<Value>(text);
    if (value) {
      at(config) = *value;
    }
    return value.has_value();
  };
  field.copy = [at](RunConfig& to, const RunConfig& from) { at(to) = at(from); };
  const auto add_words = [&](const auto& all) {
    for (const auto& choice : all) {
      field.words.push_back({choice.name, choice.help});
    }
  };
  if constexpr (std::is_arithmetic_v<Value>) {
    field.numbers = [at](const RunConfig& config) {
      return std::vector<double>{static_cast<double>(at(config))};
    };
  } else if constexpr (std::is_enum_v<Value>) {
    add_words(choices<Value>());
  } else if constexpr (std::is_same_v<Value, DeviceChoice>) {
    add_words(Value::words());
    field.pattern = Value::kPattern;
  } else if constexpr (std::is_same_v<Value, ChannelValues>) {
    add_words(choices<ChannelValues::Kind>());
    field.numbers = [at](const RunConfig& config) { return at(config).values(); };
  }
}

// Argument of describe() of one part.
template <typename Part>
class Table {
 public:
  Table(std::vector<Field>& fields, Part RunConfig::*part)
      : fields_(fields), part_(part) {}

  void section(const char* name) {
    section_ = name;
  }

  template <typename Value>
  Row<Part> add(const char* name, Value Part::*member, const char* what) {
    auto& field = fields_.emplace_back();
    field.section = section_;
    field.name = name;
    field.what = what;
    give_access<Value>(field, [part = part_, member](auto& config) -> decltype(auto) {
      return (config.*part.*member);
    });
    return {field, part_};
  }

 private:
  std::vector<Field>& fields_;
  Part RunConfig::*part_;
  const char* section_ = "";
};

template <typename Part>
void add_part(std::vector<Field>& fields, Part RunConfig::*part) {
  Table<Part> table(fields, part);
  Part::describe(table);
}

std::vector<Field> make_fields() {
  std::vector<Field> fields(1);
  fields[0].section = "run";
  fields[0].name = "name";
  fields[0].what = "name of the run in tables and reports";
  fields[0].local = true;
  give_access<std::string>(
      fields[0], [](auto& config) -> decltype(auto) { return (config.name); });
  add_part(fields, &RunConfig::data);
  add_part(fields, &RunConfig::model);
  add_part(fields, &RunConfig::training);
  add_part(fields, &RunConfig::optimizer);
  add_part(fields, &RunConfig::schedule);
  add_part(fields, &RunConfig::strategy);
  add_part(fields, &RunConfig::exec);
  add_part(fields, &RunConfig::ranks);
  add_part(fields, &RunConfig::comm);
  add_part(fields, &RunConfig::output);
  return fields;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool is_word(const Field& field, const std::string& text) {
  return std::any_of(field.words.begin(), field.words.end(), [&](const auto& word) {
    return word.name == text;
  });
}

// Returns the range of a number for messages, such as "1 to 4096 or auto".
std::string range_of(const Field& field) {
  std::string text = fmt::format(
      "{}{} to {}", field.type == Field::Type::numbers ? "numbers from " : "",
      field.least, field.most);
  for (size_t i = 0; i < field.words.size(); ++i) {
    text += (i + 1 < field.words.size() ? ", " : " or ") + field.words[i].name;
  }
  return text + (field.unset ? ", or -1 for the optimizer's default" : "");
}

std::string expected_of(const Field& field) {
  if (!field.words.empty()) {
    return range_of(field);
  }
  return field.type == Field::Type::whole  ? "a whole number"
         : field.type == Field::Type::real ? "a number"
                                           : "true or false";
}

void check_range(const RunConfig& config, const Field& field) {
  const auto numbers = field.numbers(config);
  const bool fits = std::all_of(numbers.begin(), numbers.end(), [&](double number) {
    return (number >= field.least && number <= field.most) || number == field.unset;
  });
  if (!fits && !is_word(field, field.text(config))) {
    throw ConfigError(fmt::format(
        "[config] {} is {}, expected {}; change {}", field.name, field.text(config),
        range_of(field), field.flag()));
  }
}

void check_meaning(const RunConfig& config, const Field& field) {
  static const RunConfig defaults;
  if (!field.has_meaning || field.has_meaning(config) ||
      field.text(config) == field.text(defaults) ||
      (field.former_default && field.numbers(config).front() == field.former_default)) {
    return;
  }
  const Field& needed = find_field(field.needs, field.name);
  throw ConfigError(fmt::format(
      "[config] {} is {}, which is for {} {}, not {}; leave out {}, or change {}",
      field.name, field.text(config), field.needs, field.of, needed.text(config),
      field.flag(), needed.flag()));
}

}  // namespace

std::string Field::flag() const {
  return "--" + with(name, '_', '-');
}

bool Field::is_path(const std::string& value) const {
  return ends_with_one_of(file_endings, value);
}

std::vector<std::string> Field::word_names() const {
  std::vector<std::string> names;
  for (const auto& word : words) {
    names.push_back(word.name);
  }
  return names;
}

std::string Field::help() const {
  const std::string sentence = of.empty() ? what : what + " (" + of + " only)";
  if (words_at_the_end) {
    return sentence + "; values are listed at the end";
  }
  std::string listed;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool last = i + 1 == words.size();
    listed += i == 0 ? "" : last ? " or " : ", ";
    listed += words[i].name;
    listed += words[i].help.empty() ? "" : " (" + words[i].help + ")";
  }
  return listed.empty() ? sentence
                        : sentence + (has_numbers() ? ", or " : ": ") + listed;
}

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = make_fields();
  return fields;
}

const Field& find_field(const std::string& name, const std::string& where) {
  const std::string key = with(name, '-', '_');
  std::vector<std::string> names;
  for (const auto& field : config_fields()) {
    if (key == field.name || (!key.empty() && key == field.old_name)) {
      return field;
    }
    names.push_back(field.name);
  }
  const std::string known = advice_on(key);
  const std::string advice = known.empty() ? did_you_mean(key, names) : known;
  throw ConfigError(
      "[config] " + where + ": unknown key '" + name + "'" +
      (advice.empty() ? "; see tandem train --help" : advice));
}

void set_field(
    RunConfig& config, const Field& field, const std::string& text,
    const std::string& where) {
  if (field.assign(config, text)) {
    return;
  }
  if (field.type == Field::Type::choice) {
    throw unknown_choice(
        where + ": " + field.name, text, field.word_names(), field.alternative);
  }
  throw ConfigError(
      "[config] " + where + ": " + field.name + " is '" + text + "', expected " +
      expected_of(field));
}

std::string to_toml(const RunConfig& config, const Field& field) {
  const std::string text = field.text(config);
  const bool plain = field.type == Field::Type::boolean ||
                     (field.has_numbers() && !is_word(field, text));
  const bool is_list = plain && text.find(',') != std::string::npos;
  return is_list ? "[" + text + "]" : plain ? text : quoted(text);
}

std::string to_toml(const RunConfig& config) {
  std::string text = "format_version = 1\n";
  std::string section;
  for (const auto& field : config_fields()) {
    if (section != field.section) {
      section = field.section;
      text += "\n# " + section + "\n";
    }
    text += field.name + " = " + to_toml(config, field) + "\n";
  }
  return text;
}

void check_fields(const RunConfig& config) {
  for (const auto& field : config_fields()) {
    if (field.has_numbers()) {
      check_range(config, field);
    }
    check_meaning(config, field);
  }
}

void check_options(const OptimizerOptions& options) {
  RunConfig config;
  config.optimizer = options;
  check_fields(config);
}

void check_options(const LrScheduleOptions& options) {
  RunConfig config;
  config.schedule = options;
  check_fields(config);
}

void check_options(const StrategyOptions& options) {
  RunConfig config;
  config.strategy = options;
  check_fields(config);
}

std::string settings_text(const DataOptions& options) {
  RunConfig config;
  config.data = options;
  std::string text;
  for (const auto& field : config_fields()) {
    if (field.section == std::string("data")) {
      text += field.name + "=" + field.text(config) + " ";
    }
  }
  return text;
}

}  // namespace tandem
