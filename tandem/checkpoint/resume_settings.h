#pragma once

#include <string>

#include "tandem/config/fields.h"

namespace tandem {

// A run that goes on keeps the settings it had: those of its config.toml. Flags change
// them, but for what decides which numbers the run is about (Field::kept says
// which); a recipe given again does not.

/// Whether a run with this config goes on from a checkpoint: resume names one, or is
/// "auto" and `out` holds one.
bool goes_on(const RunConfig& config);

/// The config.toml of the run that `config` goes on with: out's for resume "auto",
/// RUN's for RUN/checkpoints/step-N. "" when the run begins, or where none lies there.
std::string config_of_earlier_run(const RunConfig& config);

/// The settings in that file. What is about one start only (out, resume, node_rank and
/// the like) is `asked`'s. Throws as read_recipe().
RunConfig settings_of_run(const std::string& config_file, const RunConfig& asked);

/// "epochs 2 instead of 14": what `recipe` says otherwise than `run`, and `config`,
/// with which the run goes on, does not take over; "" when nothing is.
std::string kept_settings(
    const std::string& recipe, const RunConfig& run, const RunConfig& config);

/// "lr 0.5 instead of 1.0, epochs 5 instead of 2": what differs from an earlier
/// config.toml, but for what is about one start only; "" when nothing does.
std::string changed_settings(const std::string& earlier, const RunConfig& config);

/// Throws ConfigError when `config` has another value of what a run keeps to its end
/// than its config.toml, `earlier`. `origin` says whose that is.
void check_kept_settings(
    const std::string& earlier, const RunConfig& config, const std::string& origin);

/// A field's value in a config.toml, as to_toml() writes it, whichever version wrote
/// the file; "" where it is not there.
std::string value_in(const std::string& toml, const Field& field);

}  // namespace tandem
