#include "tandem/checkpoint/resume_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_names.h"

namespace tandem {

namespace {

// About one start of a run, not about the run.
const char* const kOfOneStart[] = {"out",       "resume",      "dry_run",
                                   "node_rank", "master_addr", "master_port"};

// Values as a recipe writes them.
bool alike(const std::string& before, const std::string& now) {
  return before == now;
}

bool always(const std::string& /*before*/, const std::string& /*now*/) {
  return true;
}

// sgd has a state with momentum, and none without.
bool both_zero_or_not(const std::string& before, const std::string& now) {
  const std::string zero = "0.0";
  return (before == zero) == (now == zero);
}

// The loss scale is a part of the optimizer's state.
bool both_none_or_not(const std::string& before, const std::string& now) {
  const std::string none = "\"none\"";
  return (before == none) == (now == none);
}

// Weights to begin with were for the beginning: to leave them out is no change.
bool left_out_or_alike(const std::string& before, const std::string& now) {
  return now == "\"\"" || before == now;
}

// A run keeps to its end what its model and data are, the order of the data, and what
// gives the optimizer's state its meaning. So fields of the sections "model" and "data"
// stay, and all others may change: number of ranks and how they stay in step, batch
// sizes, the optimizer's numbers and their schedule, output. But for these.
struct Rule {
  const char* field;
  bool (*fits)(const std::string& before, const std::string& now);
};

const Rule kRules[] = {
    // The folder may have moved: hashes of the data are compared (data_parts.h).
    {"data", &always},
    // Another number of ranks may need another.
    {"uneven", &always},
    {"init", &left_out_or_alike},
    {"seed", &alike},
    {"optimizer", &alike},
    {"momentum", &both_zero_or_not},
    {"amsgrad", &alike},
    {"loss_scale", &both_none_or_not},
};

bool fits_run(
    const ConfigField& field, const std::string& before, const std::string& now) {
  const std::string name = field.name;
  for (const auto& rule : kRules) {
    if (name == rule.field) {
      return rule.fits(before, now);
    }
  }
  const std::string section = field.section;
  return (section != "model" && section != "data") || before == now;
}

bool is_of_one_start(const ConfigField& field) {
  return std::any_of(
      std::begin(kOfOneStart), std::end(kOfOneStart),
      [&](const std::string& name) { return name == field.name; });
}

// RUN of RUN/checkpoints/step-N, "" of another path.
std::string run_of(const std::string& checkpoint) {
  namespace fs = std::filesystem;
  const std::string trimmed =
      checkpoint.substr(0, checkpoint.find_last_not_of('/') + 1);
  const fs::path checkpoints = fs::path(trimmed).parent_path();
  if (checkpoints.filename() != "checkpoints") {
    return "";
  }
  const auto run = checkpoints.parent_path().string();
  return run.empty() ? "." : run;
}

std::string instead_of(
    const ConfigField& field, const std::string& now, const std::string& before) {
  return fmt::format("{} {} instead of {}", field.name, now, before);
}

}  // namespace

std::string value_in(const std::string& toml, const std::string& key) {
  const std::string start = "\n" + key + " = ";
  const size_t at = toml.find(start);
  if (at == std::string::npos) {
    return "";
  }
  const size_t from = at + start.size();
  return toml.substr(from, toml.find('\n', from) - from);
}

bool goes_on(const RunConfig& config) {
  if (config.resume != "auto") {
    return !config.resume.empty();
  }
  return !config.out.empty() && !newest_checkpoint(config.out + "/checkpoints").empty();
}

std::string config_of_earlier_run(const RunConfig& config) {
  if (!goes_on(config)) {
    return "";
  }
  const std::string run = config.resume == "auto" ? config.out : run_of(config.resume);
  const std::string path = run + "/config.toml";
  return !run.empty() && file_exists(path) ? path : "";
}

RunConfig settings_of_run(const std::string& config_file, const RunConfig& asked) {
  RunConfig run;
  read_recipe(run, config_file);
  for (const auto& field : config_fields()) {
    if (is_of_one_start(field)) {
      std::visit([&](auto member) { run.*member = asked.*member; }, field.member);
    }
  }
  return run;
}

std::string kept_settings(
    const std::string& recipe, const RunConfig& run, const RunConfig& config) {
  // Only what the recipe names is then another value.
  RunConfig said = run;
  read_recipe(said, recipe);
  std::vector<std::string> kept;
  for (const auto& field : config_fields()) {
    const std::string before = to_toml(run, field);
    const std::string other = to_toml(said, field);
    if (!is_of_one_start(field) && other != before &&
        to_toml(config, field) == before) {
      kept.push_back(instead_of(field, before, other));
    }
  }
  return join(kept);
}

std::string changed_settings(const std::string& earlier, const RunConfig& config) {
  std::vector<std::string> changes;
  for (const auto& field : config_fields()) {
    const std::string before = value_in(earlier, field.name);
    const std::string now = to_toml(config, field);
    if (!is_of_one_start(field) && !before.empty() && before != now) {
      changes.push_back(instead_of(field, now, before));
    }
  }
  return join(changes);
}

void check_kept_settings(
    const std::string& earlier, const RunConfig& config, const std::string& origin) {
  for (const auto& field : config_fields()) {
    const std::string before = value_in(earlier, field.name);
    const std::string now = to_toml(config, field);
    if (!before.empty() && !fits_run(field, before, now)) {
      throw ConfigError(fmt::format(
          "[resume] {} is {}, but '{}' has {}, which a run keeps to its end; change {} "
          "back, or begin another run from its weights with --init",
          field.name, now, origin, before, field.flag()));
    }
  }
}

}  // namespace tandem
