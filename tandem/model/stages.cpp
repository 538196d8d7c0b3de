#include "tandem/model/stages.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/model/layer_kinds.h"

namespace tandem {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool begins_a_stage(const Layer& layer) {
  return row_of(layer).has(kBeginsStage);
}

// A convolution or linear layer, and the layers that follow it.
struct Unit {
  LayerRange layers;
  double cost = 0;
};

double time_of(const Layer& layer, const InputShape& output) {
  const auto cost = row_of(layer).cost;
  return cost == nullptr ? 0 : cost(layer, output);
}

// Returns the number of parameters of a layer that can begin a stage; 0 for other
// layers, such as batch norm.
double parameters_of(const Layer& layer) {
  if (!begins_a_stage(layer)) {
    return 0;
  }
  const auto dims = row_of(layer).weight(layer);
  const auto weights =
      std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  return static_cast<double>(weights + dims[0]);
}

std::vector<Unit> units_of(
    const std::vector<Layer>& layers, InputShape shape, Balance balance) {
  std::vector<Unit> units;
  for (size_t i = 0; i < layers.size(); ++i) {
    shape = output_of(layers[i], shape);
    const double cost =
        balance == Balance::time ? time_of(layers[i], shape) : parameters_of(layers[i]);
    if (begins_a_stage(layers[i])) {
      units.push_back({{units.empty() ? 0 : i, i}, 0});
    }
    if (!units.empty()) {
      units.back().layers.end = i + 1;
      units.back().cost += cost;
    }
  }
  return units;
}

std::string names_in(const std::vector<Layer>& layers, const LayerRange& range) {
  std::vector<std::string> names;
  for (size_t i = range.begin; i < range.end; ++i) {
    if (begins_a_stage(layers[i])) {
      names.push_back(layers[i].name);
    }
  }
  return join(names, " ");
}

// Returns the indices of the units that begin with the layers of `cut`, in order.
std::vector<size_t> units_at(
    const std::vector<Layer>& layers, const std::vector<Unit>& units, const Cut& cut) {
  std::vector<std::string> names;
  for (size_t i = 0; i < units.size(); ++i) {
    const LayerRange from{units[i].layers.begin, units[i].layers.end};
    names.push_back(names_in(layers, from));
  }
  std::vector<size_t> found;
  for (const auto& name : cut.layers) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) {
      throw ConfigError(
          "[model] --cut " + join(cut.layers, ",") + ": no stage can begin with '" +
          name + "'" + did_you_mean(name, names) + "; choose among " +
          join({names.begin() + 1, names.end()}));
    }
    found.push_back(static_cast<size_t>(at - names.begin()));
  }
  std::sort(found.begin(), found.end());
  const bool twice = std::adjacent_find(found.begin(), found.end()) != found.end();
  if (twice || (!found.empty() && found.front() == 0)) {
    throw ConfigError(
        "[model] --cut " + join(cut.layers, ",") +
        " leaves a stage without layers; name each layer once, and not the first, " +
        names.front());
  }
  return found;
}

std::vector<LayerRange> cut_at(
    const std::vector<Layer>& layers, const std::vector<Unit>& units, int64_t stages,
    const Cut& cut) {
  const auto begins = units_at(layers, units, cut);
  if (static_cast<int64_t>(begins.size()) + 1 != stages) {
    throw ConfigError(
        "[model] --cut " + join(cut.layers, ",") + " makes " +
        std::to_string(begins.size() + 1) + " stages, but there are " +
        std::to_string(stages) + "; change --cut, or --stages and --nproc");
  }
  std::vector<LayerRange> ranges = {{0, layers.size()}};
  for (const size_t unit : begins) {
    ranges.back().end = units[unit].layers.begin;
    ranges.push_back({units[unit].layers.begin, layers.size()});
  }
  return ranges;
}

// Returns for instance "conv2 fc1, 1199242 parameters (4796968 bytes)".
std::string describe_stage(const Model& model, const LayerRange& range) {
  const auto& layers = *model.layers();
  int64_t count = 0;
  int64_t bytes = 0;
  for (const auto& parameter : model.parameters()) {
    const auto layer = parameter.name.substr(0, parameter.name.rfind('.'));
    for (size_t i = range.begin; i < range.end; ++i) {
      if (layers[i].name == layer) {
        count += parameter.tensor.numel();
        bytes += static_cast<int64_t>(parameter.tensor.nbytes());
      }
    }
  }
  return names_in(layers, range) + ", " + std::to_string(count) + " parameters (" +
         std::to_string(bytes) + " bytes)";
}

}  // namespace

int64_t num_outputs(const std::vector<Layer>& layers, const InputShape& input) {
  InputShape shape = input;
  for (const auto& layer : layers) {
    shape = output_of(layer, shape);
  }
  return shape.channels * shape.height * shape.width;
}

std::vector<LayerRange> split_layers(
    const std::vector<Layer>& layers, const InputShape& input, int64_t stages,
    const Cut& cut) {
  const auto units = units_of(layers, input, cut.balance);
  if (!cut.layers.empty()) {
    return cut_at(layers, units, stages, cut);
  }
  const size_t count = units.size();
  const auto wanted = static_cast<size_t>(stages);
  if (stages < 1 || wanted > count) {
    throw ConfigError(
        "[model] " + std::to_string(stages) + " stages need as many convolutions and " +
        "linear layers, but the model has " + std::to_string(count) + " (" +
        names_in(layers, {0, layers.size()}) + "); lower --stages or --nproc");
  }
  // best[s][u] is the cost of the most expensive stage if the units from u onwards are
  // divided into s + 1 stages. next[s][u] is the end of the first of these stages.
  std::vector<std::vector<double>> best(wanted, std::vector<double>(count, kInfinity));
  std::vector<std::vector<size_t>> next(wanted, std::vector<size_t>(count, count));
  for (size_t s = 0; s < wanted; ++s) {
    for (size_t u = 0; u + s < count; ++u) {
      double cost = 0;
      for (size_t end = u + 1; end + s <= count; ++end) {
        cost += units[end - 1].cost;
        if (s == 0 && end < count) {
          continue;
        }
        const double worst = s == 0 ? cost : std::max(cost, best[s - 1][end]);
        if (worst <= best[s][u]) {
          best[s][u] = worst;
          next[s][u] = end;
        }
      }
    }
  }
  std::vector<LayerRange> ranges;
  size_t unit = 0;
  for (size_t s = wanted; s-- > 0;) {
    const size_t end = next[s][unit];
    ranges.push_back({units[unit].layers.begin, units[end - 1].layers.end});
    unit = end;
  }
  return ranges;
}

std::string keep_stage(
    Model& model, const InputShape& input, int64_t stages, int64_t stage,
    const Cut& cut) {
  if (stages == 1 && cut.layers.empty()) {
    return "the whole model";
  }
  if (model.layers() == nullptr) {
    throw ConfigError(
        "[model] the model is not a plain sequence of layers, which a pipeline needs; "
        "choose one of tandem's models (--model), or --strategy data_parallel");
  }
  const auto ranges = split_layers(*model.layers(), input, stages, cut);
  std::vector<std::string> described;
  for (const auto& range : ranges) {
    described.push_back(describe_stage(model, range));
  }
  const auto& mine = ranges[static_cast<size_t>(stage)];
  model.keep_layers(mine.begin, mine.end);
  return join(described, " | ");
}

}  // namespace tandem
