#pragma once

#include <string>

#include "tandem/config/fields.h"

namespace tandem {

// A run that resumes keeps the settings of its config.toml. Flags override them, except
// settings that a run keeps to its end (Field::kept). Passing a recipe again does not
// override them.

/// Returns whether a run with this config resumes from a checkpoint: `resume` is a
/// path, or `resume` is "auto" and `out` contains a checkpoint.
bool goes_on(const RunConfig& config);

/// Returns the path of the config.toml of the run that `config` resumes: in `out` if
/// `resume` is "auto", in RUN if `resume` is RUN/checkpoints/step-N. The run in `out`
/// need not have a checkpoint, but a dry run does not count. Returns "" if no run is
/// resumed, or if there is no such file.
std::string config_of_earlier_run(const RunConfig& config);

/// Settings of the run that a run resumes.
struct EarlierSettings {
  // Text of the run's config.toml; "" if no run is resumed, or if there is no such
  // file.
  std::string text;
  // Source of the text, for errors.
  std::string origin;
  // Folder of the run; "" if no run is resumed.
  std::string run = {};
  // True: the text is that of the checkpoint, because config.toml is missing or lacks
  // settings.
  bool of_checkpoint = false;
};

/// Reads config_of_earlier_run(config). If the file is missing or lacks settings that
/// the run's checkpoint has, returns the settings of the checkpoint. Throws DataError
/// if the file cannot be read.
EarlierSettings read_earlier_settings(const RunConfig& config);

/// Returns the settings in `earlier`, except that settings that apply to a single start
/// (out, resume, node_rank and others) are those of `asked`. Throws the errors of
/// read_recipe().
RunConfig settings_of_run(const EarlierSettings& earlier, const RunConfig& asked);

/// Returns the settings of `recipe` that have no effect, such as "epochs 2 instead of
/// 14"; "" if there are none. They have no effect because a resumed run keeps its
/// earlier settings. `run` has the settings of the earlier run, and `config` those of
/// the resumed run.
std::string kept_settings(
    const std::string& recipe, const RunConfig& run, const RunConfig& config);

/// Returns the settings of `config` that differ from the run's config.toml, such as "lr
/// 0.5 instead of 1.0, epochs 5 instead of 2". Returns "" if there are none. `earlier`
/// is the text of the config.toml. Ignores settings that apply to a single start.
std::string changed_settings(const std::string& earlier, const RunConfig& config);

/// Throws ConfigError if `config` differs from `earlier`, the text of the run's
/// config.toml, in a setting that a run keeps to its end. `origin` is the source of
/// `earlier`, for the message.
void check_kept_settings(
    const std::string& earlier, const RunConfig& config, const std::string& origin);

/// Returns a field's value in the text of a config.toml, "" if it is missing. The value
/// has the form of to_toml(), even if another version of tandem wrote the file.
std::string value_in(const std::string& toml, const Field& field);

}  // namespace tandem
