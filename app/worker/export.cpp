#include <fmt/core.h>

#include "app/command_line.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/formats/torch_file.h"

namespace tandem::app {

int work_export(const Arguments& arguments) {
  CLI::App app("Writes a checkpoint's model for other programs.", "tandem export");
  std::string checkpoint;
  std::string out;
  app.add_option(
         "--checkpoint", checkpoint,
         "directory of a checkpoint or its model.safetensors; or directory of a run, "
         "for its newest checkpoint")
      ->required();
  app.add_option(
         "--out", out,
         "FILE.pt or FILE.pth for Python's torch.load, or FILE.safetensors for a copy")
      ->required();
  bool ema = false;
  app.add_flag(
      "--ema", ema,
      "write the moving average of the weights, of a run with --ema-decay");
  parse(app, arguments);

  const bool is_torch = ends_with(out, ".pt") || ends_with(out, ".pth");
  if (!is_torch && !ends_with(out, ".safetensors")) {
    throw ConfigError(
        "[export] --out is '" + out +
        "', expected a name that ends in .pt, .pth or .safetensors; change --out");
  }
  const auto model =
      read_model(checkpoint, ema ? CheckpointWeights::ema : CheckpointWeights::own);
  if (is_torch) {
    write_torch_file(out, model.tensors);
  } else {
    write_safetensors(out, model);
  }
  fmt::print("wrote {} tensors to {}\n", model.tensors.size(), out);
  return 0;
}

}  // namespace tandem::app
