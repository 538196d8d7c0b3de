#include <fmt/core.h>

#include <algorithm>

#include "app/command_line.h"
#include "app/worker/model_program.h"
#include "tandem/base/text.h"
#include "tandem/config/fields.h"
#include "tandem/exec/compiled/graph_layers.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/pt2.h"
#include "tandem/model/module_tree.h"
#include "tandem/model/script_model.h"

namespace tandem::app {

namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& choice : choices<ModelKind>()) {
    if (is_built_in(choice.value)) {
      names.emplace_back(choice.name);
    }
  }
  return names;
}

bool is_network_path(const std::string& name) {
  return find_field("model", "tandem model").is_path(name);
}

ModelKind parse_model(const std::string& name) {
  const auto kind = find_choice<ModelKind>(name);
  if (!kind || !is_built_in(*kind)) {
    throw unknown_choice(
        "MODEL", name, model_names(),
        "a file of torch.export (NET.pt2) or TorchScript (NET.pt)");
  }
  return *kind;
}

std::vector<int64_t> parse_shape(const std::string& text) {
  const auto sizes = parse_sizes(text, 'x');
  const bool fits = sizes && sizes->size() == 3 &&
                    *std::max_element(sizes->begin(), sizes->end()) <= 4096;
  if (!fits) {
    throw ConfigError(
        "[model] --input is '" + text +
        "', expected CHANNELSxHEIGHTxWIDTH, each from 1 to 4096; change --input, for "
        "example to 1x28x28");
  }
  return *sizes;
}

// Shortens a text to `width` characters by removing its middle.
std::string fitted(const std::string& text, size_t width) {
  if (text.size() <= width) {
    return text;
  }
  const size_t half = (width - 3) / 2;
  return text.substr(0, half) + "..." + text.substr(text.size() - (width - 3 - half));
}

void print_row(
    const std::string& name, const std::string& operation, const std::string& shape,
    const std::string& parameters, const std::string& flops) {
  fmt::print(
      "{:<24} {:<22} {:<20} {:>12} {:>14}\n", fitted(with_escapes(name), 24),
      fitted(with_escapes(operation), 22), shape, parameters, flops);
}

// Lists the nodes that only LibTorch can run, by reason, with the first node of each.
void print_obstacles(const Graph& graph) {
  struct Obstacle {
    std::string reason;
    const Node* first;
    int64_t count;
  };
  std::vector<Obstacle> all;
  int64_t count = 0;
  for (const auto& node : graph.nodes) {
    const std::string reason = node_obstacle(graph, node);
    if (reason.empty()) {
      continue;
    }
    ++count;
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const auto& row) { return row.reason == reason; });
    if (found == all.end()) {
      all.push_back({reason, &node, 1});
    } else {
      ++found->count;
    }
  }
  const std::string whole = layers_in(graph).obstacle;
  if (whole.empty()) {
    fmt::print("The compiled executor runs this model as a chain of layers.\n");
  } else if (all.empty()) {
    fmt::print(
        "The compiled executor records the operators of this model, because it is no "
        "chain of layers: {}.\n",
        whole);
  } else {
    fmt::print(
        "The compiled executor records the operators of this model, because it is no "
        "chain of layers:\n{} of {} nodes have no kernel in a chain (*):\n",
        count, graph.nodes.size());
  }
  for (const auto& [reason, first, nodes] : all) {
    fmt::print(
        "  {:>3} x {}\n        {}{}\n", nodes, printable(reason),
        nodes > 1 ? "first " : "", fitted(with_escapes(name_for_messages(*first)), 85));
  }
}

void print_graph(const Graph& graph) {
  print_row("Layer", "Operator", "Output shape", "Parameters", "FLOPs/sample");
  print_row("input", "", text_of(graph.value(graph.input).shape), "0", "0");
  int64_t parameters = 0;
  double flops = 0;
  for (const auto& layer : summarise(graph)) {
    const Node& node = graph.nodes[layer.node];
    const bool marked = !node_obstacle(graph, node).empty();
    print_row(
        layer_name(node),
        node.target.substr(node.target.rfind(':') + 1) + (marked ? " *" : ""),
        text_of(layer.output), std::to_string(layer.num_parameters),
        fmt::format("{:.0f}", layer.flops));
    flops += layer.flops;
  }
  for (const auto& value : graph.values) {
    parameters += value.kind == ValueKind::parameter ? value.tensor.numel() : 0;
  }
  fmt::print(
      "Total parameters: {}\nTotal FLOPs per sample: {:.0f}\n", parameters, flops);
  print_obstacles(graph);
}

// A TorchScript module has no layers that tandem knows.
void print_script(const std::string& path) {
  const auto model = load_script_model(path);
  int64_t parameters = 0;
  for (const auto& [name, tensor] : model->parameters()) {
    fmt::print("{:<40} {}\n", with_escapes(name), c10::str(tensor.sizes()));
    parameters += tensor.numel();
  }
  fmt::print(
      "Total parameters: {}\nA TorchScript module runs as it is, on the eager "
      "executor.\n",
      parameters);
}

void print_file(const std::string& path) {
  if (is_script_file(path)) {
    print_script(path);
  } else {
    print_graph(read_pt2(path));
  }
}

}  // namespace

int work_model(const Arguments& arguments) {
  CLI::App app(
      "Prints the modules of one of tandem's models as PyTorch does, then the layers "
      "of "
      "the model or of a network file: output shape for N samples, parameters, FLOPs, "
      "and whether the compiled executor can run them.",
      "tandem model");
  std::string name;
  std::string shape = "1x28x28";
  ModelOptions options;
  app.add_option(
         "model", name,
         join(model_names()) +
             ", or a file of torch.export (NET.pt2) or TorchScript "
             "(NET.pt)")
      ->required();
  auto* input = app.add_option(
      "--input", shape, "CHANNELSxHEIGHTxWIDTH of an image (default: 1x28x28)");
  auto* classes =
      app.add_option(
             "--classes", options.num_classes, "number of classes (default: 10)")
          ->check(whole_number(1, 1'000'000));
  ProgramDump dump;
  bool dumps_program = false;
  auto* program = app.add_flag(
      "--dump-program", dumps_program,
      "print the calls and kernels of a training step of a NET.pt2 that compiled "
      "records");
  app.add_flag("--profile", dump.profile, "with their shares of the time")
      ->needs(program);
  app.add_option("--batch-size", dump.batch_size, "samples of the step (default: 32)")
      ->check(whole_number(1, 1'000'000))
      ->needs(program);
  parse(app, arguments);
  if (dumps_program) {
    if (!is_network_path(name)) {
      throw ConfigError(
          "[model] --dump-program applies to a file of torch.export (NET.pt2), not to "
          "'" +
          name + "'; leave it out");
    }
    print_program(name, dump);
    return 0;
  }
  if (is_network_path(name)) {
    if (input->count() + classes->count() > 0) {
      throw ConfigError(
          "[model] --input and --classes do not apply to '" + name +
          "', which has its own; leave them out");
    }
    print_file(name);
    return 0;
  }
  const ModelKind kind = parse_model(name);
  const int64_t border = 2 * row_of(kind).pad;
  options.input = parse_shape(shape);
  options.input[1] += border;
  options.input[2] += border;

  const auto model = make_model(kind, options);
  fmt::print("{}\n", module_tree(kind, layers_of(kind, options)));
  print_graph(*model->graph());
  return 0;
}

}  // namespace tandem::app
