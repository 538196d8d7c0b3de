#include "app/describe.h"

#include <algorithm>

#include "tandem/config/fields.h"
#include "tandem/data/dataset.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

// The setting of this flag, or null. `plural` looks for that of which the flag takes
// several: --backends.
const Field* find_setting(const std::string& flag, bool plural) {
  for (const auto& field : config_fields()) {
    if (flag == field.flag() + (plural ? "s" : "")) {
      return &field;
    }
  }
  return nullptr;
}

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

void describe_value(ordered_json& json, const CLI::Option& option) {
  // An argument with the name of a setting, such as MODEL, has the setting's values.
  const std::string flag = option.get_positional() ? "--" + option.get_name()
                           : option.get_lnames().empty()
                               ? std::string()
                               : json["names"][0].get<std::string>();
  const bool list = option.get_delimiter() == ',';
  const Field* field = find_setting(flag, list);
  const bool number = field != nullptr ? field->is_number() : is_number(option);
  json["kind"] = list ? "list" : number ? "number" : "text";
  if (flag == "--data") {
    json["choices"] = choices_of(dataset_table());
  } else if (field != nullptr && !field->words.empty()) {
    json["choices"] = choices_of(field->words);
  }
  // `tandem train` shows a default where CLI11 shows a type.
  const std::string type = option.get_type_name();
  if (type.rfind("= ", 0) == 0) {
    json["default"] = type.substr(2);
  }
}

ordered_json describe(const CLI::Option& option) {
  ordered_json json = {{"names", ordered_json::array()}};
  for (const auto& name : option.get_lnames()) {
    json["names"].push_back("--" + name);
  }
  for (const auto& name : option.get_snames()) {
    json["names"].push_back("-" + name);
  }
  if (option.get_positional()) {
    json["place"] = option.get_name();
    json["many"] = option.get_expected_max() > 1;
  }
  json["required"] = option.get_required();
  json["help"] = option.get_description();
  json["group"] = option.get_group();
  json["value"] = option.get_items_expected_max() > 0;
  if (json["value"]) {
    describe_value(json, option);
  }
  return json;
}

}  // namespace

std::string describe(const CLI::App& app) {
  ordered_json json = {
      {"name", app.get_name()},
      {"description", app.get_description()},
      {"options", ordered_json::array()}};
  for (const auto* option : app.get_options()) {
    // Those without a group are our own programs' alone.
    if (!option->get_group().empty()) {
      json["options"].push_back(describe(*option));
    }
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem::app
