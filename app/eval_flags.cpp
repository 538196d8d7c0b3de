#include "app/eval_flags.h"

#include "app/command_line.h"
#include "app/setting_flag.h"

namespace tandem::app {

EvalOptions parse_eval(const Arguments& arguments) {
  CLI::App app("Evaluates a checkpoint on the test part of a data set.", "tandem eval");
  EvalOptions options;
  app.add_option(
         "--checkpoint", options.checkpoint,
         "a checkpoint's directory, its model.safetensors, or a run's directory: its "
         "newest")
      ->required();
  app.add_option(
      "--data", options.data, "a name or a folder; default: what it was trained on");
  app.add_option("--limit", options.limit, "first N samples only; 0: all")
      ->check(whole_number(0));
  app.add_option("--batch-size", options.batch_size, "samples per batch")
      ->check(whole_number(1, 1 << 24));
  add_setting(app, options.config, "device");
  parse(app, arguments);
  return options;
}

}  // namespace tandem::app
