#include <fmt/core.h>

#include "app/command_line.h"
#include "tandem/train/evaluation.h"

namespace tandem::app {

int work_eval(const Arguments& arguments) {
  CLI::App app("Evaluates a checkpoint on the test part of a data set.", "tandem eval");
  std::string checkpoint;
  CheckpointEvaluation options;
  app.add_option(
         "--checkpoint", checkpoint,
         "a checkpoint's directory, its model.safetensors, or a run's directory: its "
         "newest")
      ->required();
  app.add_option(
      "--data", options.data,
      "digits, mnist or a folder; default: what it was trained on");
  app.add_option("--limit", options.limit, "first N samples only; 0: all")
      ->check(whole_number(0));
  app.add_option("--batch-size", options.batch_size, "samples per batch")
      ->check(whole_number(1, 1 << 24));
  parse(app, arguments);

  const auto report = evaluate_checkpoint(checkpoint, options);
  fmt::print(
      "Test set: Average loss: {:.4f}, Accuracy: {}/{} ({:.2f}%)\n", report.loss,
      report.correct, report.count, report.accuracy());
  return 0;
}

}  // namespace tandem::app
