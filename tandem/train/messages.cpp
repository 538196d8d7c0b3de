#include "tandem/train/messages.h"

#include <fmt/core.h>

#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/train/totals.h"

namespace tandem {

namespace {

std::string describe_run(
    const RunConfig& config, const Dataset& train, const Assembly& parts,
    Communicator& comm) {
  const auto& training = config.training;
  const bool shards = parts.shard != Sharding::automatic;
  const int64_t parts_of_data = parts.strategy->data_shard().num_shards;
  const auto batch =
      training.divide_batch
          ? fmt::format("batch {} / {}", training.batch_size, parts_of_data)
          : fmt::format("{} x batch {}", parts_of_data, training.batch_size);
  const ParameterCount count = count_parameters(parts, comm);
  const auto frozen =
      count.frozen > 0 ? fmt::format(", {} frozen", count.frozen) : std::string();
  return fmt::format(
      "{} ({}{}) on {}: {}, {}{}, {}, {}{}, executor {}, {}{}", config.model.model(),
      counted(count.all, "parameter"), frozen, train.name,
      counted(train.size, "sample"), batch,
      training.accumulate > 1 ? fmt::format(" x {}", training.accumulate) : "",
      name_of(config.strategy.kind), counted(comm.size(), "rank"),
      comm.size() == 1 ? "" : std::string(" over ") + comm.backend(),
      name_of(parts.executor->kind()), name_of(config.exec.precision),
      shards ? fmt::format(", shard {}", name_of(parts.shard)) : "");
}

// Returns the end of a sentence about the weights of the best evaluation.
std::string best_weights(const Summary& summary, const OutputOptions& output) {
  if (output.out.empty() || output.dry_run) {
    return "";
  }
  const auto path =
      checkpoint_path(output.out + "/checkpoints", summary.best_test_step);
  return file_exists(path) ? fmt::format(
                                 "; its weights are in '{}' (--checkpoint '{}' --best)",
                                 path, output.out)
                           : "; its weights are not kept, since --keep-best is not set";
}

}  // namespace

std::vector<std::string> describe_start(
    const RunConfig& config, const Dataset& train, const Assembly& parts,
    const std::string& why_not_on_device, Communicator& comm) {
  std::vector<std::string> lines = {describe_run(config, train, parts, comm)};
  if (!parts.executor_passed_over.empty()) {
    lines.push_back(fmt::format(
        "executor {}: {}", name_of(parts.executor->kind()),
        parts.executor_passed_over));
  }
  if (!why_not_on_device.empty()) {
    lines.push_back(fmt::format(
        "data: the samples stay in main memory, because {}; each batch is copied to {}",
        why_not_on_device, parts.arenas->device().str()));
  }
  return lines;
}

std::string describe_scaling(const Summary& summary) {
  return fmt::format(
      "{} of {} steps were skipped because gradients overflowed; the loss scale is "
      "now {}",
      summary.skipped_steps, summary.steps, summary.loss_scale);
}

std::string nothing_to_train(
    const Position& position, const TrainingOptions& options,
    const std::string& ended_by) {
  if (position.step == 0) {
    return fmt::format("Nothing to train: epochs is {}", options.epochs);
  }
  return fmt::format(
      "Nothing left to train: the run ended {}",
      ended_by == "patience"
          ? fmt::format(
                "early, at step {}; raise --patience, or set it to 0, to continue",
                position.step)
      : ended_by == "converged"
          ? fmt::format(
                "at step {}, because it had converged; start another run from its "
                "weights with --init to continue",
                position.step)
          : fmt::format(
                "after {}, at step {}; raise --epochs to continue",
                counted(position.epoch, "epoch"), position.step));
}

std::string describe_end(
    const Summary& summary, const TrainingOptions& options,
    const OutputOptions& output) {
  if (summary.ended_by != "patience") {
    return fmt::format("Stopped by the program's observer, at step {}", summary.steps);
  }
  return fmt::format(
      "Stopped early: no {} loss in {} was below {:.4f}, the loss at step {}{}",
      summary.has_validation ? "validation" : "test",
      counted(options.patience, "evaluation"), summary.best_test_loss,
      summary.best_test_step, best_weights(summary, output));
}

Error stopped_for_loss(const Decision& decision, const std::string& checkpoint) {
  return Error(fmt::format(
      "[train] the loss is not finite at step {} on rank {}; lower --lr, or set "
      "--clip-norm{}",
      decision.bad_step, decision.bad_rank,
      checkpoint.empty() ? "" : "; the last good checkpoint is " + checkpoint));
}

void throw_stopped_by_signal(
    const Decision& decision, int64_t step, const OutputOptions& output,
    const std::string& checkpoint) {
  const bool saved = !output.out.empty() && !output.dry_run;
  const auto line = fmt::format(
      "[train] stopped by a signal to rank {} at step {}; {}", decision.stopping_rank,
      step,
      saved ? fmt::format("'{}' is saved; continue with --resume auto", checkpoint)
      : output.out.empty() ? "set --out to save checkpoints"
                           : "a dry run saves nothing");
  throw_for_exit_code(saved ? kExitStopped : 1, line);
}

}  // namespace tandem
