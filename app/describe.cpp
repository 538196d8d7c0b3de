#include "app/describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/config/fields.h"
#include "tandem/data/load_dataset.h"
#include "tandem/data/named_datasets.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

template <typename Words>
ordered_json choices_of(const Words& words) {
  ordered_json choices = ordered_json::array();
  for (const auto& word : words) {
    choices.push_back({{"name", word.name}, {"help", word.help}});
  }
  return choices;
}

bool is_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type == "INT" || type == "UINT" || type == "FLOAT";
}

// Returns the setting whose values an option accepts, or null. The name of a list is
// the plural of the setting's name, such as --backends for backend. A positional
// argument may also have the name of a setting, such as MODEL.
const Field* find_setting(const CLI::Option& option) {
  const std::string name = option.get_positional()       ? option.get_name()
                           : option.get_lnames().empty() ? std::string()
                                                         : option.get_lnames()[0];
  const char* ending = option.get_delimiter() == ',' ? "s" : "";
  const auto& fields = config_fields();
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) {
    return "--" + name == field.flag() + ending;
  });
  return found == fields.end() ? nullptr : &*found;
}

// Returns the kind of value of a flag or an argument; "" for a switch.
std::string kind_of_value(const CLI::Option& option, const Field* field) {
  if (option.get_items_expected_max() == 0) {
    return "";
  }
  if (option.get_delimiter() == ',') {
    return "list";
  }
  if (field != nullptr ? field->is_number() : is_number(option)) {
    return "number";
  }
  if (option.check_lname("data")) {
    return "data";
  }
  for (const std::string place : {"recipe", "program"}) {
    if (option.get_positional() && option.get_name().rfind(place, 0) == 0) {
      return place;
    }
  }
  return field != nullptr && !field->words.empty() && field->file_endings.empty()
             ? "word"
             : "file";
}

ordered_json names_of(const CLI::Option& option) {
  ordered_json names = ordered_json::array();
  for (const auto& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  for (const auto& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  return names;
}

ordered_json describe(const CLI::Option& option) {
  const Field* field = find_setting(option);
  const bool at_the_end = field != nullptr && field->words_at_the_end &&
                          option.get_description() == field->help();
  const std::string kind = kind_of_value(option, field);
  // `tandem train` shows a default where CLI11 shows a type.
  const std::string type = option.get_type_name();
  ordered_json json = {
      {"names", names_of(option)},
      {"place", option.get_positional() ? option.get_name() : ""},
      {"many", option.get_positional() && option.get_expected_max() > 1},
      {"required", option.get_required()},
      {"help", at_the_end ? field->what : option.get_description()},
      {"group", option.get_group()},
      {"default", type.rfind("= ", 0) == 0 ? type.substr(2) : ""},
      {"kind", kind},
      {"choices", ordered_json::array()},
      {"choices_in_help", !at_the_end}};
  if (kind == "data") {
    json["choices"] = choices_of(named_datasets());
  } else if (field != nullptr && !kind.empty()) {
    json["choices"] = choices_of(field->words);
  }
  return json;
}

}  // namespace

std::string describe(const CLI::App& app) {
  ordered_json json = {
      {"name", app.get_name()},
      {"description", app.get_description()},
      {"options", ordered_json::array()},
      {"commands", ordered_json::array()}};
  for (const auto* option : app.get_options()) {
    // Options without a group are internal, so they are not described.
    if (!option->get_group().empty()) {
      json["options"].push_back(describe(*option));
    }
  }
  return json.dump(2) + "\n";
}

std::string describe(const std::string& name, const std::vector<Command>& commands) {
  ordered_json json = {
      {"name", name}, {"description", ""}, {"options", ordered_json::array()}};
  for (const auto& command : commands) {
    json["commands"].push_back({{"name", command.name}, {"help", command.help}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem::app
