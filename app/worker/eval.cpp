#include <fmt/core.h>

#include <filesystem>

#include "app/command_line.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/train/assembly.h"
#include "tandem/train/evaluation.h"

namespace tandem::app {

namespace {

void check_is_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model_file(path), ignored)) {
    throw DataError(
        "[checkpoint] '" + path +
        "' has no model.safetensors; name a directory such as RUN/checkpoints/step-N");
  }
}

}  // namespace

int work_eval(const Arguments& arguments) {
  CLI::App app("Evaluates a checkpoint on the test part of a data set.", "tandem eval");
  std::string checkpoint;
  std::string data;
  int64_t limit = 0;
  int64_t batch_size = 1000;
  app.add_option(
         "--checkpoint", checkpoint,
         "a checkpoint's directory, or its model.safetensors")
      ->required();
  app.add_option(
      "--data", data, "digits, mnist or a folder; default: what it was trained on");
  app.add_option("--limit", limit, "first N samples only; 0: all")
      ->check(whole_number(0));
  app.add_option("--batch-size", batch_size, "samples per batch")
      ->check(whole_number(1, 1 << 24));
  parse(app, arguments);

  check_is_checkpoint(checkpoint);
  RunConfig config = config_from(load_model(checkpoint, nullptr));
  if (!data.empty()) {
    config.data.source = data;
  }
  const auto splits = load_dataset(config.data.source, limit);
  auto comm = make_single_communicator();
  const Assembly parts = assemble(config, splits.test, *comm);
  const auto state = parts.arenas->state();
  load_model(checkpoint, &state);
  LoaderOptions options = loader_options(config);
  options.batch_size = batch_size;
  const auto report = evaluate(*parts.strategy, *comm, splits.test, options);
  fmt::print(
      "Test set: Average loss: {:.4f}, Accuracy: {}/{} ({:.2f}%)\n", report.loss,
      report.correct, report.count, report.accuracy());
  return 0;
}

}  // namespace tandem::app
