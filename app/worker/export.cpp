#include <fmt/core.h>

#include "app/command_line.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_file.h"
#include "tandem/graph/pt2_writer.h"
#include "tandem/train/checkpoint_model.h"
#include "tandem/train/onnx_export.h"

namespace tandem::app {

namespace {

struct ExportOptions {
  std::string checkpoint;
  std::string out;
  // Network file; "" for the copy in the run's directory.
  std::string network;
  // The network file may be TorchScript that `network` does not name.
  bool trusts_scripts = false;
  CheckpointWeights weights = CheckpointWeights::own;
  // The ONNX file normalizes its input.
  bool normalizes = false;
};

size_t export_state_dict(const ExportOptions& options) {
  const auto model = read_model(options.checkpoint, options.weights);
  write_torch_file(options.out, model.tensors);
  return model.tensors.size();
}

size_t export_safetensors(const ExportOptions& options) {
  const auto model = read_model(options.checkpoint, options.weights);
  write_safetensors(options.out, model);
  return model.tensors.size();
}

size_t count_tensors(const Graph& graph) {
  return parameters_of(graph).size() + buffers_of(graph).size();
}

CheckpointModel load_graph(const ExportOptions& options) {
  return load_checkpoint_graph(
      options.checkpoint, options.network, options.weights, options.trusts_scripts);
}

size_t export_pt2(const ExportOptions& options) {
  const auto loaded = load_graph(options);
  const Graph& graph = *loaded.model->graph();
  write_pt2(options.out, graph);
  return count_tensors(graph);
}

size_t export_onnx(const ExportOptions& options) {
  const auto loaded = load_graph(options);
  replace_file(options.out, onnx_bytes(onnx_export(loaded, options.normalizes)));
  return count_tensors(*loaded.model->graph());
}

struct ExportFormat {
  const char* suffix;
  const char* help;
  // Writes options.out. Returns the number of tensors.
  size_t (*write)(const ExportOptions& options);
  // The file contains the network, not only its weights.
  bool has_network = false;
};

constexpr ExportFormat kFormats[] = {
    {".pt", "weights for Python's torch.load", &export_state_dict},
    {".pth", "weights for Python's torch.load", &export_state_dict},
    {".safetensors", "weights and facts about the model", &export_safetensors},
    {".pt2", "network and weights for Python's torch.export.load (2.9 or later)",
     &export_pt2, true},
    {".onnx", "the network in evaluation mode, with its weights (opset 17)",
     &export_onnx, true},
};

const ExportFormat& format_of(const std::string& out) {
  std::string suffixes;
  for (const auto& format : kFormats) {
    if (ends_with(out, format.suffix)) {
      return format;
    }
    suffixes += std::string(suffixes.empty() ? "" : ", ") + format.suffix;
  }
  throw ConfigError(
      "[export] --out is '" + out + "', expected a name that ends in one of " +
      suffixes + "; change --out");
}

std::string help_of_formats() {
  std::string help;
  for (const auto& format : kFormats) {
    help += std::string(help.empty() ? "FILE" : "; FILE") + format.suffix + ": " +
            format.help;
  }
  return help;
}

}  // namespace

int work_export(const Arguments& arguments) {
  CLI::App app("Writes a checkpoint's model for other programs.", "tandem export");
  ExportOptions options;
  app.add_option(
         "--checkpoint", options.checkpoint,
         "directory of a checkpoint or its model.safetensors; or directory of a run, "
         "for its newest checkpoint")
      ->required();
  app.add_option("--out", options.out, help_of_formats())->required();
  bool best = false;
  app.add_flag("--best", best, kBestHelp);
  add_network_file(app, options.network);
  add_trust(app, options.trusts_scripts);
  app.add_flag_function(
      "--ema", [&](int64_t) { options.weights = CheckpointWeights::ema; },
      "write the moving average of the weights, of a run with --ema-decay");
  app.add_flag(
      "--normalize", options.normalizes,
      "let an .onnx file normalize its input (x / 255 of pixels, mean, std), so that "
      "it accepts raw samples");
  parse(app, arguments);
  const ExportFormat& format = format_of(options.out);
  if (!options.network.empty() && !format.has_network) {
    throw ConfigError(
        "[export] --model is '" + options.network + "', but " + format.suffix +
        " files contain only weights; leave out --model");
  }
  if (options.normalizes && !ends_with(options.out, ".onnx")) {
    throw ConfigError(
        "[export] --normalize is set, but --out is '" + options.out +
        "', expected a name that ends in .onnx; leave out --normalize");
  }
  if (best) {
    options.checkpoint = best_checkpoint(options.checkpoint);
  }
  const size_t tensors = format.write(options);
  fmt::print(
      "wrote {} to {}\n", counted(static_cast<int64_t>(tensors), "tensor"),
      options.out);
  return 0;
}

}  // namespace tandem::app
