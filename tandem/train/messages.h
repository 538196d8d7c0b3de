#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"
#include "tandem/train/agreement/agreement.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// Returns the first lines that a run prints: model, data, ranks, and the values chosen
/// for `auto`. `why_not_on_device` is LoaderOptions::why_not_on_device. Collective.
std::vector<std::string> describe_start(
    const RunConfig& config, const Dataset& train, const Assembly& parts,
    const std::string& why_not_on_device, Communicator& comm);

/// Returns a line with the number of steps that were skipped because gradients
/// overflowed, and with the loss scale.
std::string describe_scaling(const Summary& summary);

/// Returns a line that explains why a run makes no steps. `ended_by` is the result of
/// RunEnd::reason().
std::string nothing_to_train(
    const Position& position, const TrainingOptions& options,
    const std::string& ended_by);

/// Returns a line about a run that `patience` or the program's observer ended early.
/// `output` has the directory with the weights of the best evaluation.
std::string describe_end(
    const Summary& summary, const TrainingOptions& options,
    const OutputOptions& output);

/// Returns the error for a run that stops because a loss is not finite. `checkpoint` is
/// the path of the newest checkpoint; "" if there is none.
Error stopped_for_loss(const Decision& decision, const std::string& checkpoint);

/// Throws the error for a run that a signal has stopped: StoppedError if the run saves
/// checkpoints, otherwise Error. `checkpoint` is the path of the newest checkpoint.
[[noreturn]] void throw_stopped_by_signal(
    const Decision& decision, int64_t step, const OutputOptions& output,
    const std::string& checkpoint);

}  // namespace tandem
