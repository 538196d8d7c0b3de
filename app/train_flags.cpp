#include "app/train_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "app/command_line.h"
#include "app/flag_names.h"
#include "app/recipe_name.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/config/tutorial_figures.h"
#include "tandem/data/load_dataset.h"
#include "tandem/data/named_datasets.h"
#include "tandem/data/sources.h"
#include "tandem/launch/restarts.h"

namespace tandem::app {

namespace {

// Adds the flags of all settings. Their values are applied after the recipe is read.
void add_flags(CLI::App& app) {
  const RunConfig defaults;
  for (const auto& field : config_fields()) {
    const std::string name = field.flag().substr(2);
    std::string names = "--" + name;
    for (const auto& alias : field.other_flags) {
      // CLI11 cannot parse -nr.
      const bool parsable = alias[1] == '-' || alias.size() == 2;
      names += parsable ? "," + alias : "";
    }
    const std::string help = field.help();
    auto* option =
        field.type == Field::Type::boolean
            ? app.add_flag(names + ",!--no-" + name, help)
            : app.add_option(names, help)->type_name("= " + to_toml(defaults, field));
    option->group(field.section);
  }
}

std::string line_of(const std::string& name, const std::string& help) {
  return fmt::format("  {:<17} {}\n", name, help);
}

// Returns a list of the values of data sets and of settings with many values, for the
// end of the help.
std::string choices_text() {
  std::string text = "--data\n";
  for (const auto& entry : named_datasets()) {
    text += line_of(entry.name, entry.help);
  }
  for (const auto& source : data_sources()) {
    text += line_of("PATH", source.files);
  }
  text +=
      "  The files of NAME are in $TANDEM_DATA/NAME or in the cache. tandem data "
      "fetch NAME or --fetch\n  downloads them.\n\n";
  for (const auto& field : config_fields()) {
    if (!field.words_at_the_end) {
      continue;
    }
    text += field.flag() + "\n";
    for (const auto& word : field.words) {
      text += line_of(word.name, word.help);
    }
    text += "\n";
  }
  return text;
}

void add_arguments(
    CLI::App& app, std::string& recipe, bool& fetch, bool& trusts_scripts) {
  app.add_option(
      "recipe", recipe,
      "recipe: a TOML file with any of the settings below, or the name of an installed "
      "recipe (tandem recipes)");
  app.add_option("--set", "key=value: set a setting by its recipe key")
      ->type_name("TEXT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag(
      "--fetch", fetch,
      "download the data set first if files are missing (tandem data fetch)");
  add_trust(app, trusts_scripts);
  app.add_flag_callback(
      "--recipe-schema",
      [] {
        std::cout << recipe_schema();
        throw HelpShown();
      },
      "print a JSON schema of recipes, for editors");
  add_flags(app);
  app.footer(choices_text());
}

// Reads MASTER_ADDR and MASTER_PORT from the environment.
void read_master_variables(RunConfig& config) {
  for (const char* name : {"master_addr", "master_port"}) {
    std::string variable = name;
    std::transform(variable.begin(), variable.end(), variable.begin(), ::toupper);
    const std::string value = get_env(variable).value_or("");
    if (!value.empty()) {
      set_field(config, find_field(name, variable), value, variable);
    }
  }
}

std::pair<std::string, std::string> split_assignment(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    throw ConfigError(
        "[command line] --set is '" + text + "', expected key=value; change it");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void apply_command_line(RunConfig& config, const CLI::App& app) {
  for (const auto& field : config_fields()) {
    for (auto text : app.get_option(field.flag())->results()) {
      if (field.type == Field::Type::boolean) {
        // Flags accept more words than recipes, as in --augment=on.
        const auto value = parse_bool(text);
        text = !value ? text : *value ? "true" : "false";
      }
      set_field(config, field, text, field.flag());
    }
  }
  bool names_model = app.count("--model") > 0;
  for (const auto& assignment : app.get_option("--set")->results()) {
    const auto [key, value] = split_assignment(assignment);
    const auto& field = find_field(key, "--set");
    set_field(config, field, value, "--set " + key);
    names_model = names_model || field.name == "model";
  }
  if (app.count("--trust") > 0) {
    config.model.trust = ScriptTrust::all;
  } else if (names_model) {
    config.model.trust = ScriptTrust::named;
  }
}

// Makes ranks that were started again resume from the newest checkpoint, if the run has
// one. A checkpoint that --resume names is used until then (RunCheckpoints). Returns
// whether it has changed `config`.
bool resume_after_restart(RunConfig& config) {
  const bool changes =
      is_started_again() && config.output.resume.empty() && !config.output.out.empty();
  if (changes) {
    config.output.resume = "auto";
  }
  return changes;
}

// Returns the settings of the resumed run that this process reads from a file.
EarlierSettings earlier_settings(const RunConfig& config, bool after_restart) {
  if (after_restart && !goes_on(config)) {
    // The arguments have the settings. config.toml may be that of an earlier run.
    return {};
  }
  const auto env = after_restart ? read_rank_env() : std::nullopt;
  return env && env->rank > 0 ? EarlierSettings() : read_earlier_settings(config);
}

void check_model(const RunConfig& config) {
  if (config.model.kind == ModelKind::custom) {
    throw ConfigError(
        "[config] model is custom, which is for programs with their own model "
        "(examples/custom_model); change --model");
  }
  if (config.model.kind == ModelKind::file) {
    // Throws if the file is missing or not trusted.
    static_cast<void>(network_file(config));
  }
}

}  // namespace

RunConfig parse_train_arguments(
    const Arguments& arguments, TrainExtras* extras, const EarlierSettings* earlier) {
  CLI::App app(
      "Trains a model. Flags override the recipe; underscores in flags work like "
      "dashes.",
      "tandem train");
  std::string named;
  TrainExtras more;
  bool trusts_scripts = false;
  add_arguments(app, named, more.fetch, trusts_scripts);
  parse(app, with_own_names(arguments));

  RunConfig config;
  const std::string recipe = recipe_path(named);
  if (!recipe.empty()) {
    read_recipe(config, recipe);
    more.without_gpu = read_without_gpu(recipe);
  }
  apply_command_line(config, app);
  const bool after_restart = resume_after_restart(config);
  more.earlier =
      earlier != nullptr ? *earlier : earlier_settings(config, after_restart);
  if (!more.earlier.text.empty()) {
    const RunConfig run = settings_of_run(more.earlier, config);
    config = run;
    apply_command_line(config, app);
    resume_after_restart(config);
    check_kept_settings(to_toml(run), config, more.earlier.origin);
    if (extras != nullptr && !recipe.empty()) {
      more.kept = kept_settings(recipe, run, config);
    }
  }
  // A run on one host needs no address. It ignores the variables, which may be from
  // another run.
  if (config.ranks.nnodes > 1 && !get_env("RANK")) {
    read_master_variables(config);
    apply_command_line(config, app);
  }
  check(config);
  check_settings_of_format(config);
  check_model(config);
  if (extras != nullptr) {
    *extras = more;
  }
  return config;
}

}  // namespace tandem::app
