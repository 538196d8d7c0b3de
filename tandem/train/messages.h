#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/error.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"
#include "tandem/train/agreement/agreement.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// A run's first line: model, data, ranks, and what `auto` chose. Collective.
std::string describe_run(
    const RunConfig& config, const Dataset& train, const Assembly& parts,
    Communicator& comm);

/// What became of steps whose gradients overflowed.
std::string describe_scaling(const Summary& summary);

/// Why a run makes no step. `ended_by`: RunEnd::reason().
std::string nothing_to_train(
    const Position& position, const TrainingOptions& options,
    const std::string& ended_by);

/// Why a run ended before its last epoch.
std::string describe_end(const Summary& summary, const TrainingOptions& options);

/// Why a run ends. `checkpoint`: the last good one, "" without.
Error stopped_for_loss(const Decision& decision, const std::string& checkpoint);

/// Throws StoppedError if the run has saved, else Error.
[[noreturn]] void throw_stopped_by_signal(
    const Decision& decision, int64_t step, const OutputOptions& output);

}  // namespace tandem
