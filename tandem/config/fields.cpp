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

// Function that returns a part of its owner, such as RunConfig::optimizer.
template <typename Owner, typename Part>
using PartOf = std::function<Part&(Owner&)>;

// Result of Table::add(), with which describe() adds further properties to a field.
template <typename Owner, typename Part>
class Row {
 public:
  Row(FieldOf<Owner>& field, PartOf<Owner, Part> part)
      : field_(field), part_(std::move(part)) {}

  Row& between(double least, double most) {
    field_.least = least;
    field_.most = most;
    return *this;
  }
  Row& or_unset(double value) {
    field_.unset = value;
    return *this;
  }
  Row& or_word(const char* word, double value, const char* help = "") {
    field_.words.push_back({word, help});
    const auto assign = field_.assign;
    const auto text = field_.text;
    const auto number = field_.number;
    const auto set_number = [assign, value](Owner& config) {
      return assign(config, std::to_string(static_cast<int64_t>(value)));
    };
    const std::string name = word;
    // Rejects the number that the word stands for; only the word selects it.
    field_.assign = [=](Owner& config, const std::string& given) {
      return given == name ? set_number(config)
                           : assign(config, given) && number(config) != value;
    };
    field_.text = [=](const Owner& config) {
      return number(config) == value ? name : text(config);
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
    // A copy, because the vector of fields may move its elements.
    const FieldBase field = field_;
    field_.assign = [=, part = part_, assign = field_.assign](
                        Owner& owner, const std::string& given) {
      const bool is_path = field.is_path(given);
      if (!is_path && (given == name || !assign(owner, given))) {
        return false;
      }
      if (is_path) {
        part(owner).*member = file;
      }
      part(owner).*path = is_path ? given : "";
      return true;
    };
    field_.text = [=, part = part_, text = field_.text](const Owner& owner) {
      const Part& values = part(const_cast<Owner&>(owner));
      return values.*member == file ? values.*path : text(owner);
    };
    field_.copy = [=, part = part_](Owner& to, const Owner& from) {
      const Part& values = part(const_cast<Owner&>(from));
      part(to).*member = values.*member;
      part(to).*path = values.*path;
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
    field_.has_meaning = [part = part_, member, wanted](const Owner& config) {
      const E value = part(const_cast<Owner&>(config)).*member;
      return std::find(wanted.begin(), wanted.end(), value) != wanted.end();
    };
    return *this;
  }
  // Sets FieldBase::of, a text for help. Unlike with needs(), the field may be set even
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
  FieldOf<Owner>& field_;
  PartOf<Owner, Part> part_;
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
// field's value in an owner.
template <typename Value, typename Owner, typename At>
void give_access(FieldOf<Owner>& field, At at) {
  field.type = type_of<Value>();
  field.text = [at](const Owner& owner) {
    return text_of<Value>(at(const_cast<Owner&>(owner)));
  };
  field.assign = [at](Owner& owner, const std::string& text) {
    const auto value = value_of<Value>(text);
    if (value) {
      at(owner) = *value;
    }
    return value.has_value();
  };
  field.copy = [at](Owner& to, const Owner& from) {
    at(to) = at(const_cast<Owner&>(from));
  };
  if constexpr (std::is_arithmetic_v<Value>) {
    field.number = [at](const Owner& owner) {
      return static_cast<double>(at(const_cast<Owner&>(owner)));
    };
    field.are_between = [at](const Owner& owner, double least, double most) {
      const auto value = static_cast<double>(at(const_cast<Owner&>(owner)));
      return value >= least && value <= most;
    };
  }
  const auto add_words = [&](const auto& all) {
    for (const auto& choice : all) {
      field.words.push_back({choice.name, choice.help});
    }
  };
  if constexpr (std::is_enum_v<Value>) {
    add_words(choices<Value>());
  } else if constexpr (std::is_same_v<Value, DeviceChoice>) {
    add_words(Value::words());
    field.pattern = Value::kPattern;
  } else if constexpr (std::is_same_v<Value, ChannelValues>) {
    for (const auto& choice : choices<ChannelValues::Kind>()) {
      if (choice.value != ChannelValues::Kind::given) {
        field.words.push_back({choice.name, choice.help});
      }
    }
    field.are_between = [at](const Owner& owner, double least, double most) {
      return at(const_cast<Owner&>(owner)).are_between(least, most);
    };
  }
}

// Argument of describe() of one part.
template <typename Owner, typename Part>
class Table {
 public:
  Table(std::vector<FieldOf<Owner>>& fields, PartOf<Owner, Part> part)
      : fields_(fields), part_(std::move(part)) {}

  void section(const char* name) {
    section_ = name;
  }

  template <typename Value>
  Row<Owner, Part> add(const char* name, Value Part::*member, const char* what) {
    auto& field = fields_.emplace_back();
    field.section = section_;
    field.name = name;
    field.what = what;
    give_access<Value>(field, [part = part_, member](Owner& owner) -> Value& {
      return part(owner).*member;
    });
    return {field, part_};
  }

 private:
  std::vector<FieldOf<Owner>>& fields_;
  PartOf<Owner, Part> part_;
  const char* section_ = "";
};

template <typename Owner, typename Part>
void add_part(std::vector<FieldOf<Owner>>& fields, PartOf<Owner, Part> part) {
  Table<Owner, Part> table(fields, std::move(part));
  Part::describe(table);
}

template <typename Part>
void add_part(std::vector<Field>& fields, Part RunConfig::*part) {
  add_part<RunConfig, Part>(
      fields, [part](RunConfig& config) -> Part& { return config.*part; });
}

std::vector<Field> make_fields() {
  std::vector<Field> fields(1);
  fields[0].section = "run";
  fields[0].name = "name";
  fields[0].what = "name of the run in tables and reports";
  fields[0].local = true;
  give_access<std::string>(
      fields[0], [](RunConfig& config) -> std::string& { return config.name; });
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

std::vector<std::string> names_of(const std::vector<Field::Word>& words) {
  std::vector<std::string> names;
  for (const auto& word : words) {
    names.push_back(word.name);
  }
  return names;
}

bool is_word(const FieldBase& field, const std::string& text) {
  return std::any_of(field.words.begin(), field.words.end(), [&](const auto& word) {
    return word.name == text;
  });
}

// Returns the range of a number for messages, such as "1 to 4096 or auto".
std::string range_of(const FieldBase& field) {
  std::string text = fmt::format(
      "{}{} to {}", field.type == Field::Type::numbers ? "numbers from " : "",
      field.least, field.most);
  for (size_t i = 0; i < field.words.size(); ++i) {
    text += (i + 1 < field.words.size() ? ", " : " or ") + field.words[i].name;
  }
  return text + (field.unset ? ", or -1 for the optimizer's default" : "");
}

std::string expected_of(const FieldBase& field) {
  if (!field.words.empty()) {
    return range_of(field);
  }
  return field.type == Field::Type::whole  ? "a whole number"
         : field.type == Field::Type::real ? "a number"
                                           : "true or false";
}

template <typename Owner>
void check_range(const Owner& owner, const FieldOf<Owner>& field) {
  const bool is_unset = field.unset && field.number(owner) == field.unset;
  if (!field.are_between(owner, field.least, field.most) && !is_unset &&
      !is_word(field, field.text(owner))) {
    throw ConfigError(fmt::format(
        "[config] {} is {}, expected {}; change {}", field.name, field.text(owner),
        range_of(field), field.flag()));
  }
}

template <typename Owner>
void check_meaning(
    const Owner& owner, const FieldOf<Owner>& field,
    const std::vector<FieldOf<Owner>>& fields) {
  static const Owner defaults;
  if (!field.has_meaning || field.has_meaning(owner) ||
      field.text(owner) == field.text(defaults)) {
    return;
  }
  const auto needed = std::find_if(fields.begin(), fields.end(), [&](const auto& one) {
    return one.name == field.needs;
  });
  throw ConfigError(fmt::format(
      "[config] {} is {}, which is for {} {}, not {}; leave out {}, or change {}",
      field.name, field.text(owner), field.needs, field.of, needed->text(owner),
      field.flag(), needed->flag()));
}

template <typename Owner>
void check_all(const Owner& owner, const std::vector<FieldOf<Owner>>& fields) {
  for (const auto& field : fields) {
    if (field.has_numbers()) {
      check_range(owner, field);
    }
    check_meaning(owner, field, fields);
  }
}

// Returns the settings of one struct.
template <typename Options>
const std::vector<FieldOf<Options>>& fields_of() {
  static const auto fields = [] {
    std::vector<FieldOf<Options>> own;
    add_part<Options, Options>(own, [](Options& all) -> Options& { return all; });
    return own;
  }();
  return fields;
}

}  // namespace

std::string FieldBase::flag() const {
  return "--" + with(name, '_', '-');
}

bool FieldBase::is_path(const std::string& value) const {
  return std::any_of(
      file_endings.begin(), file_endings.end(), [&](const std::string& ending) {
        return value.size() > ending.size() &&
               value.compare(value.size() - ending.size(), ending.size(), ending) == 0;
      });
}

std::string FieldBase::help() const {
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
        where + ": " + field.name, text, names_of(field.words), field.alternative);
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
  check_all(config, config_fields());
}

template <typename Options>
void check_options(const Options& options) {
  check_all(options, fields_of<Options>());
}

template <typename Options>
std::string settings_text(const Options& options) {
  std::string text;
  for (const auto& field : fields_of<Options>()) {
    text += field.name + "=" + field.text(options) + " ";
  }
  return text;
}

template void check_options(const OptimizerOptions&);
template void check_options(const LrScheduleOptions&);
template void check_options(const StrategyOptions&);
template std::string settings_text(const DataOptions&);

}  // namespace tandem
