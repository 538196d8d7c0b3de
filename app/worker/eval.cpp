#include <fmt/core.h>

#include "app/eval_flags.h"
#include "app/worker/devices.h"
#include "tandem/train/evaluation.h"

namespace tandem::app {

int work_eval(const Arguments& arguments) {
  const EvalOptions options = parse_eval(arguments);
  CheckpointEvaluation evaluation;
  evaluation.network = options.network;
  evaluation.data = options.data;
  evaluation.limit = options.limit;
  evaluation.batch_size = options.batch_size;
  evaluation.weights = options.ema ? CheckpointWeights::ema : CheckpointWeights::own;
  evaluation.placement = find_placement(options.config, 0);
  const auto report = evaluate_checkpoint(options.checkpoint, evaluation);
  fmt::print(
      "Test set: Average loss: {:.4f}, Accuracy: {}/{} ({:.2f}%)\n", report.loss,
      report.correct, report.count, report.accuracy());
  return 0;
}

}  // namespace tandem::app
