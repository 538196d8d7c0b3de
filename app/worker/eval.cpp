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

// A model takes images of one shape, which its checkpoint knows.
void check_images(
    const std::map<std::string, std::string>& description, const Dataset& data) {
  std::vector<std::string> sizes;
  for (const char* key : {"channels", "height", "width"}) {
    const auto found = description.find(key);
    sizes.push_back(found == description.end() ? "" : found->second);
  }
  const std::string wanted = join(sizes, "x");
  const std::string found =
      fmt::format("{}x{}x{}", data.channels, data.height, data.width);
  if (found != wanted) {
    throw ConfigError(
        "[data] the images of " + data.name + " are " + found +
        ", but this model was trained on " + wanted + "; choose another --data");
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
  app.add_option("--data", data, "a name or a folder; default: what it was trained on");
  app.add_option("--limit", limit, "first N samples only; 0: all")
      ->check(whole_number(0));
  app.add_option("--batch-size", batch_size, "samples per batch")
      ->check(whole_number(1, 1 << 24));
  parse(app, arguments);

  check_is_checkpoint(checkpoint);
  const auto description = load_model(checkpoint, nullptr);
  RunConfig config = config_from(description);
  if (!data.empty()) {
    config.data.source = data;
  }
  const auto splits = load_dataset(config.data.source, limit);
  check_images(description, splits.test);
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
