#include "app/train_flags.h"

#include <map>

#include "app/command_line.h"

namespace tandem::app {

namespace {

bool is_bool(const ConfigField& field) {
  return std::holds_alternative<bool RunConfig::*>(field.member);
}

// Flags in the order of the table; values stay text until the recipe is read.
struct Flags {
  std::map<const ConfigField*, std::string> texts;
  std::map<const ConfigField*, bool> switches;
};

void add_flags(CLI::App& app, Flags& flags) {
  const RunConfig defaults;
  for (const auto& field : config_fields()) {
    const std::string name = field.flag().substr(2);
    const std::string underscores = field.name;
    const std::string names =
        name == underscores ? "--" + name : "--" + name + ",--" + underscores;
    CLI::Option* option = nullptr;
    if (is_bool(field)) {
      option =
          app.add_flag(names + ",!--no-" + name, flags.switches[&field], field.help);
    } else {
      option = app.add_option(names, flags.texts[&field], field.help);
      option->type_name("= " + to_toml(defaults, field));
    }
    option->group(field.section);
  }
}

std::pair<std::string, std::string> split_assignment(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    throw ConfigError("[command line] --set " + text + ": expected key=value");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace

RunConfig parse_train_arguments(const Arguments& arguments) {
  CLI::App app("Trains a model. Flags win over the recipe.", "tandem train");
  std::string recipe;
  std::vector<std::string> assignments;
  Flags flags;
  app.add_option("recipe", recipe, "a recipe (TOML) with any of the settings below");
  app.add_option("--set", assignments, "key=value: any setting by its recipe key")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_flags(app, flags);
  parse(app, arguments);

  RunConfig config;
  if (!recipe.empty()) {
    read_recipe(config, recipe);
  }
  for (const auto& field : config_fields()) {
    const auto* option = app.get_option(field.flag());
    if (option->count() == 0) {
      continue;
    }
    const std::string text = is_bool(field)
                                 ? (flags.switches[&field] ? "true" : "false")
                                 : flags.texts[&field];
    set_field(config, field, text, field.flag());
  }
  for (const auto& assignment : assignments) {
    const auto [key, value] = split_assignment(assignment);
    set_field(config, find_field(key, "--set"), value, "--set " + key);
  }
  check(config);
  return config;
}

}  // namespace tandem::app
