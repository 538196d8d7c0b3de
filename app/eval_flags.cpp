#include "app/eval_flags.h"

#include "app/command_line.h"
#include "app/setting_flag.h"
#include "tandem/config/fields.h"

namespace tandem::app {

EvalOptions parse_eval(const Arguments& arguments) {
  CLI::App app(
      "Evaluates a checkpoint on the test samples of a data set.", "tandem eval");
  EvalOptions options;
  app.add_option(
         "--checkpoint", options.checkpoint,
         "directory of a checkpoint, its model.safetensors, or directory of a run (its "
         "newest checkpoint)")
      ->required();
  app.add_option_function<std::string>(
      "--model",
      [&options](const std::string& path) {
        if (!find_field("model", "--model").is_path(path)) {
          throw ConfigError(
              "[eval] --model is '" + path +
              "', expected a network file, NET.pt2 or NET.pt; leave out --model");
        }
        options.network = path;
      },
      "NET.pt2 or NET.pt, the network file of the training (default: the copy in the "
      "run's directory)");
  app.add_option(
      "--data", options.data,
      "name or folder of a data set (default: that of the training)");
  app.add_option(
         "--limit", options.limit,
         "number of samples to use, from the first on; 0: all")
      ->check(whole_number(0));
  app.add_option("--batch-size", options.batch_size, "samples per batch")
      ->check(whole_number(1, 1 << 24));
  app.add_flag(
      "--ema", options.ema,
      "evaluate the moving average of the weights, of a run with --ema-decay");
  add_setting(app, options.config, "device");
  parse(app, arguments);
  return options;
}

}  // namespace tandem::app
