#pragma once

#include <string>

#include "tandem/config/fields.h"

namespace tandem {

// A run that resumes keeps the settings of its config.toml. Flags override them, except
// settings that a run keeps to its end (Field::kept). Passing a recipe again does not
// override them.

/// Returns whether a run with this config resumes from a checkpoint: `resume` is a
/// checkpoint, or is "auto" and `out` contains one.
bool goes_on(const RunConfig& config);

/// Returns the config.toml of the run that `config` resumes: that of `out` for resume
/// "auto", that of RUN for RUN/checkpoints/step-N. Returns "" if no run is resumed, or
/// if there is no such file.
std::string config_of_earlier_run(const RunConfig& config);

/// Returns the settings in that file. Settings for a single start (out, resume,
/// node_rank and the like) are from `asked`. Throws as read_recipe().
RunConfig settings_of_run(const std::string& config_file, const RunConfig& asked);

/// Returns the settings of `recipe` that differ from `run` and that `config`, with
/// which the run resumes, does not use, such as "epochs 2 instead of 14"; "" if there
/// are none.
std::string kept_settings(
    const std::string& recipe, const RunConfig& run, const RunConfig& config);

/// Returns the differences from an earlier config.toml, except settings for a single
/// start, such as "lr 0.5 instead of 1.0, epochs 5 instead of 2"; "" if there are none.
std::string changed_settings(const std::string& earlier, const RunConfig& config);

/// Throws ConfigError if `config` differs from `earlier`, the run's config.toml, in a
/// setting that a run keeps to its end. `origin` is the source of `earlier`, for the
/// message.
void check_kept_settings(
    const std::string& earlier, const RunConfig& config, const std::string& origin);

/// Returns a field's value in a config.toml as to_toml() writes it, for a file of any
/// version; "" if it is missing.
std::string value_in(const std::string& toml, const Field& field);

}  // namespace tandem
