#include "app/eval_flags.h"

#include "app/command_line.h"

namespace tandem::app {

namespace {

// Adds the options that select the checkpoint, the samples and the device.
void add_options(
    CLI::App& app, EvalOptions& options, const char* data, const char* limit) {
  app.add_option(
         "--checkpoint", options.checkpoint,
         "directory of a checkpoint, its model.safetensors, or directory of a run (its "
         "newest checkpoint)")
      ->required();
  app.add_flag("--best", options.best, kBestHelp);
  add_network_file(app, options.network);
  add_trust(app, options.trusts_scripts);
  app.add_option("--data", options.data, data);
  app.add_option_function<std::string>(
      "--split",
      [&options](const std::string& name) {
        options.part = parse_choice<DataPart>("--split", name);
      },
      "part of the data set: " + join(choice_names<DataPart>()) + " (default: test)");
  app.add_option("--limit", options.limit, limit)->check(whole_number(0));
  app.add_option("--batch-size", options.batch_size, "samples per batch")
      ->check(whole_number(1, 1 << 24));
  app.add_flag(
      "--ema", options.ema,
      "evaluate the moving average of the weights, of a run with --ema-decay");
  add_setting(app, options.config, "device");
}

}  // namespace

EvalOptions parse_eval(const Arguments& arguments) {
  CLI::App app("Evaluates a checkpoint on samples of a data set.", "tandem eval");
  EvalOptions options;
  add_options(
      app, options, "name or path of a data set (default: that of the training)",
      "number of samples to use, chosen as by tandem train; 0: all");
  app.add_flag(
      "--details", options.details,
      "also print the accuracy of each class and the confusion matrix");
  parse(app, arguments);
  return options;
}

EvalOptions parse_predict(const Arguments& arguments) {
  CLI::App app(
      "Writes a checkpoint's predictions for the samples of a data set as CSV: index, "
      "file (of images), label, prediction, and the probability of each class; or the "
      "predicted numbers.",
      "tandem predict");
  EvalOptions options;
  add_options(
      app, options,
      "name or path of a data set, or inputs without targets: an image or a folder of "
      "images, a .npy or .csv file, or an IDX file (default: the data set of the "
      "training)",
      "number of samples to use, from the first on; 0: all");
  app.add_option("--out", options.out, "CSV file to write")->required();
  parse(app, arguments);
  return options;
}

}  // namespace tandem::app
