#include <fmt/core.h>

#include "app/eval_flags.h"
#include "app/worker/devices.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/train/class_results.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/predictions.h"
#include "tandem/train/report/progress.h"

namespace tandem::app {

namespace {

CheckpointEvaluation evaluation_of(const EvalOptions& options) {
  CheckpointEvaluation evaluation;
  evaluation.network = options.network;
  evaluation.trusts_scripts = options.trusts_scripts;
  evaluation.data = options.data;
  evaluation.part = options.part;
  evaluation.limit = options.limit;
  evaluation.batch_size = options.batch_size;
  evaluation.weights = options.ema ? CheckpointWeights::ema : CheckpointWeights::own;
  evaluation.placement = find_placement(options.config, 0);
  return evaluation;
}

std::string checkpoint_of(const EvalOptions& options) {
  return options.best ? best_checkpoint(options.checkpoint) : options.checkpoint;
}

}  // namespace

int work_eval(const Arguments& arguments) {
  const EvalOptions options = parse_eval(arguments);
  auto evaluation = evaluation_of(options);
  ClassResults classes;
  if (options.details) {
    evaluation.after_batch = [&](const EvaluatedBatch& batch) { classes.add(batch); };
  }
  const auto report = evaluate_checkpoint(checkpoint_of(options), evaluation);
  fmt::print("{}\n{}", describe(report, 2), classes.text());
  return 0;
}

int work_predict(const Arguments& arguments) {
  const EvalOptions options = parse_predict(arguments);
  const auto count =
      write_predictions(options.out, checkpoint_of(options), evaluation_of(options));
  fmt::print("wrote {} to {}\n", counted(count, "prediction"), options.out);
  return 0;
}

}  // namespace tandem::app
