#pragma once

#include <string>

#include "tandem/config/fields.h"

namespace tandem {

// A run that goes on keeps the settings it had: those of its config.toml. Flags change
// them, except those that make it this run (Field::kept); a recipe given again does
// not.

/// Whether a run with this config goes on from a checkpoint: resume names one, or is
/// "auto" and `out` holds one.
bool goes_on(const RunConfig& config);

/// The config.toml of the run that `config` goes on with: out's for resume "auto",
/// RUN's for RUN/checkpoints/step-N. "" when the run begins, or where there is none.
std::string config_of_earlier_run(const RunConfig& config);

/// The settings in that file. What is about one start only (out, resume, node_rank and
/// the like) is `asked`'s. Throws as read_recipe().
RunConfig settings_of_run(const std::string& config_file, const RunConfig& asked);

/// "epochs 2 instead of 14": settings that `recipe` has otherwise than `run` and that
/// `config`, with which the run goes on, does not take over; "" when there are none.
std::string kept_settings(
    const std::string& recipe, const RunConfig& run, const RunConfig& config);

/// "lr 0.5 instead of 1.0, epochs 5 instead of 2": what differs from an earlier
/// config.toml, except what is about one start only; "" when nothing does.
std::string changed_settings(const std::string& earlier, const RunConfig& config);

/// Throws ConfigError when `config` differs from `earlier`, the run's config.toml, in a
/// setting that a run keeps to its end. `origin` says where `earlier` is from.
void check_kept_settings(
    const std::string& earlier, const RunConfig& config, const std::string& origin);

/// A field's value in a config.toml, as to_toml() writes it, whichever version wrote
/// the file; "" where it is not there.
std::string value_in(const std::string& toml, const Field& field);

}  // namespace tandem
