#include <fmt/core.h>

#include <algorithm>

#include "app/command_line.h"
#include "tandem/base/text.h"
#include "tandem/model/module_tree.h"

namespace tandem::app {

namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& choice : choices<ModelKind>()) {
    if (choice.value != ModelKind::custom) {
      names.emplace_back(choice.name);
    }
  }
  return names;
}

ModelKind parse_model(const std::string& name) {
  const auto kind = find_choice<ModelKind>(name);
  if (!kind || kind == ModelKind::custom) {
    throw unknown_choice("MODEL", name, model_names());
  }
  return *kind;
}

InputShape parse_shape(const std::string& text) {
  std::vector<int64_t> sizes;
  for (const auto& part : split(text, 'x')) {
    sizes.push_back(parse_number<int64_t>(part).value_or(0));
  }
  const bool fits = sizes.size() == 3 &&
                    std::all_of(sizes.begin(), sizes.end(), [](const int64_t size) {
                      return size >= 1 && size <= 4096;
                    });
  if (!fits) {
    throw ConfigError(
        "[model] --input is '" + text +
        "', expected CHANNELSxHEIGHTxWIDTH, each from 1 to 4096; change --input, for "
        "example to 1x28x28");
  }
  return {sizes[0], sizes[1], sizes[2]};
}

void print_row(
    const std::string& name, const std::vector<int64_t>& shape, int64_t parameters) {
  std::string sizes = "[N";
  for (const int64_t size : shape) {
    sizes += ", " + std::to_string(size);
  }
  fmt::print("{:<12} {:<20} {:>10}\n", name, sizes + "]", parameters);
}

}  // namespace

int work_model(const Arguments& arguments) {
  CLI::App app(
      "Prints the modules of a model as PyTorch does, then its layers with their "
      "output shape for N samples and their number of parameters.",
      "tandem model");
  std::string name;
  std::string shape = "1x28x28";
  ModelOptions options;
  app.add_option("model", name, join(model_names()))->required();
  app.add_option(
      "--input", shape, "CHANNELSxHEIGHTxWIDTH of an image (default: 1x28x28)");
  app.add_option("--classes", options.num_classes, "number of classes (default: 10)")
      ->check(whole_number(1, 256));
  parse(app, arguments);
  const ModelKind kind = parse_model(name);
  const int64_t border = 2 * row_of(kind).pad;
  options.input = parse_shape(shape);
  options.input.height += border;
  options.input.width += border;

  const auto model = make_model(kind, options);
  fmt::print(
      "{}\n{:<12} {:<20} {:>10}\n", module_tree(kind, *model->layers()), "Layer",
      "Output shape", "Parameters");
  const auto& input = options.input;
  print_row("input", {input.channels, input.height, input.width}, 0);
  int64_t total = 0;
  for (const auto& layer : summarise(*model, input)) {
    print_row(layer.name, layer.output, layer.num_parameters);
    total += layer.num_parameters;
  }
  fmt::print("Total parameters: {}\n", total);
  return 0;
}

}  // namespace tandem::app
