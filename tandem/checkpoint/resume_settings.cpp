#include "tandem/checkpoint/resume_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/formats/safetensors_metadata.h"

namespace tandem {

namespace {

// Returns whether a value in the form of to_toml() is a path of Field::file_endings.
bool is_path(const Field& field, const std::string& toml) {
  return toml.size() > 2 && field.is_path(toml.substr(1, toml.size() - 2));
}

// Returns whether a run may resume with the value `now` of a setting. A run keeps the
// settings that define its model, its data and their order, and the meaning of the
// optimizer's state. All other settings may change: number of ranks, strategy, batch
// sizes, hyperparameters of the optimizer, schedule, output.
bool fits_run(const Field& field, const std::string& before, const std::string& now) {
  const RunConfig defaults;
  const std::string usual = to_toml(defaults, field);
  switch (field.kept) {
    case ResumeRule::value:
      // Another path may be a copy of the same file; the loader compares the content.
      return before == now || (is_path(field, before) && is_path(field, now));
    case ResumeRule::whether_default:
      return (before == usual) == (now == usual);
    case ResumeRule::value_or_empty:
      return now == "\"\"" || before == now;
    default:
      return true;
  }
}

// Returns RUN of RUN/checkpoints/step-N, "" for any other path.
std::string run_of(const std::string& checkpoint) {
  namespace fs = std::filesystem;
  const std::string trimmed =
      checkpoint.substr(0, checkpoint.find_last_not_of('/') + 1);
  fs::path checkpoints = fs::path(trimmed).parent_path();
  if (checkpoints.filename() != "checkpoints") {
    // The path may be a link, or relative to a folder in the run.
    std::error_code ignored;
    checkpoints = fs::canonical(trimmed, ignored).parent_path();
  }
  if (checkpoints.filename() != "checkpoints") {
    return "";
  }
  const auto run = checkpoints.parent_path().string();
  return run.empty() ? "." : run;
}

// Returns the value `written` in the form in which this version of tandem writes it. If
// this version does not have the value, returns it unchanged.
std::string canonical(const Field& field, const std::string& written) {
  if (field.type == Field::Type::text || is_path(field, written)) {
    return written;
  }
  RunConfig config;
  const bool quoted = written.size() > 1 && written.front() == '"';
  const bool known =
      field.assign(config, quoted ? written.substr(1, written.size() - 2) : written);
  return known ? to_toml(config, field) : written;
}

std::string run_to_resume(const RunConfig& config) {
  const auto& output = config.output;
  return output.resume == "auto" ? output.out : run_of(output.resume);
}

std::string checkpoint_to_resume(const RunConfig& config) {
  const auto& output = config.output;
  return output.resume == "auto" ? newest_checkpoint(output.out + "/checkpoints")
                                 : output.resume;
}

bool has_field(const std::string& toml, const Field& field) {
  return !value_in(toml, field).empty();
}

// Returns whether `toml` lacks a setting that `complete` has.
bool lacks_fields(const std::string& toml, const std::string& complete) {
  const auto& fields = config_fields();
  return std::any_of(fields.begin(), fields.end(), [&](const Field& field) {
    return has_field(complete, field) && !has_field(toml, field);
  });
}

bool is_of_dry_run(const std::string& config_toml) {
  const auto text = read_file(config_toml, kMostRecipeBytes);
  return value_in(text, find_field("dry_run", "")) == "true";
}

std::string instead_of(
    const Field& field, const std::string& now, const std::string& before) {
  return fmt::format("{} {} instead of {}", field.name, now, before);
}

}  // namespace

std::string value_in(const std::string& toml, const Field& field) {
  const std::string start = "\n" + field.name + " = ";
  const size_t at = toml.find(start);
  if (at == std::string::npos) {
    return "";
  }
  const size_t from = at + start.size();
  return canonical(field, toml.substr(from, toml.find('\n', from) - from));
}

bool goes_on(const RunConfig& config) {
  if (config.output.resume != "auto") {
    return !config.output.resume.empty();
  }
  return !config.output.out.empty() &&
         !newest_checkpoint(config.output.out + "/checkpoints").empty();
}

std::string config_of_earlier_run(const RunConfig& config) {
  const bool newest = config.output.resume == "auto";
  const std::string run = run_to_resume(config);
  const std::string path = run + "/config.toml";
  if (run.empty() || !file_exists(path)) {
    return "";
  }
  return newest && !goes_on(config) && is_of_dry_run(path) ? "" : path;
}

EarlierSettings read_earlier_settings(const RunConfig& config) {
  const std::string path = config_of_earlier_run(config);
  const std::string text = path.empty() ? "" : read_file(path, kMostRecipeBytes);
  // The last line of a file that was cut may be incomplete.
  const std::string lines = text.substr(0, text.rfind('\n') + 1);
  const std::string run = run_to_resume(config);
  if (!run.empty() && goes_on(config) && !has_field(lines, config_fields().back())) {
    const auto checkpoint = checkpoint_to_resume(config);
    auto saved = safetensors_metadata(checkpoint + "/training.safetensors")["config"];
    if (lacks_fields(lines, saved)) {
      return {std::move(saved), checkpoint, run, true};
    }
  }
  return {text, path, path.empty() ? "" : run, false};
}

RunConfig settings_of_run(const EarlierSettings& earlier, const RunConfig& asked) {
  RunConfig run;
  read_recipe_text(run, earlier.text, earlier.origin);
  for (const auto& field : config_fields()) {
    if (field.of_one_start) {
      field.copy(run, asked);
    }
  }
  return run;
}

std::string kept_settings(
    const std::string& recipe, const RunConfig& run, const RunConfig& config) {
  // A copy of `run` in which the settings of the recipe replace those of the run.
  RunConfig said = run;
  read_recipe(said, recipe);
  std::vector<std::string> kept;
  for (const auto& field : config_fields()) {
    const std::string before = to_toml(run, field);
    const std::string other = to_toml(said, field);
    if (!field.of_one_start && other != before && to_toml(config, field) == before) {
      kept.push_back(instead_of(field, before, other));
    }
  }
  return join(kept);
}

std::string changed_settings(const std::string& earlier, const RunConfig& config) {
  std::vector<std::string> changes;
  for (const auto& field : config_fields()) {
    const std::string before = value_in(earlier, field);
    const std::string now = to_toml(config, field);
    if (!field.of_one_start && !before.empty() && before != now) {
      changes.push_back(instead_of(field, now, before));
    }
  }
  return join(changes);
}

void check_kept_settings(
    const std::string& earlier, const RunConfig& config, const std::string& origin) {
  for (const auto& field : config_fields()) {
    const std::string before = value_in(earlier, field);
    const std::string now = to_toml(config, field);
    if (!before.empty() && !fits_run(field, before, now)) {
      throw ConfigError(fmt::format(
          "[resume] {} is {}, expected {} as in '{}', since a run keeps it to its end; "
          "change {} back, or start another run with another --out, and --init for the "
          "weights",
          field.name, now, before, origin, field.flag()));
    }
  }
}

}  // namespace tandem
