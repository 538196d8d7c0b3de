#include "tandem/train/model_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/graph/effects.h"
#include "tandem/graph/gradient_paths.h"

namespace tandem {

namespace {

// Throws ConfigError if the graph does not allow the batches or the ranks of the run.
void check_graph(const RunConfig& config, const Graph& graph, int num_ranks) {
  check_samples(graph, config.training.batch_size, "--batch-size");
  const Node* change = find_change_of_parameter(graph);
  if (change != nullptr && num_ranks > 1) {
    throw ConfigError(fmt::format(
        "[model] {} changes a parameter in forward, so {} ranks would have different "
        "parameters; use --nproc 1, or remove the change (such as max_norm of an "
        "embedding)",
        name_for_messages(*change), num_ranks));
  }
}

// Warns of the first parameter whose gradient is always 0. Throws ConfigError if no
// other parameter exists.
void check_gradients(const Graph& graph, bool warns) {
  const auto untrained = find_untrained(graph);
  const auto parameters = parameters_of(graph);
  const auto trained = std::count_if(
      parameters.begin(), parameters.end(),
      [](const NamedTensor& parameter) { return parameter.tensor.requires_grad(); });
  if (trained == static_cast<std::ptrdiff_t>(untrained.size())) {
    throw ConfigError(
        "[model] no parameter of the model gets a gradient from its output; train a "
        "model whose output depends on a trainable parameter");
  }
  for (const auto& parameter : untrained) {
    if (warns && parameter.operation != nullptr) {
      log_warning(fmt::format(
          "[model] {} gets no gradient, because the derivative of {} is 0; a file of "
          "torch.export has no backward() of a torch.autograd.Function, so use other "
          "operators, or freeze the parameter (--freeze)",
          parameter.name, name_for_messages(*parameter.operation)));
      return;
    }
  }
}

// A function that a network computes at its end and a loss computes again.
struct Doubled {
  LossKind loss;
  std::vector<std::string> operators;
  const char* function;
  const char* effect;
  const char* fix;
};

const std::vector<std::string> kSoftmax = {
    "aten::softmax", "aten::_softmax", "aten::special_softmax"};
const char* const kTwice =
    "training is slow and the probabilities of tandem predict are wrong";
const char* const kWithoutSoftmax =
    "remove the softmax from the network, or replace it by log_softmax (loss nll)";
const Doubled kDoubled[] = {
    {LossKind::cross_entropy, kSoftmax, "softmax", kTwice, kWithoutSoftmax},
    {LossKind::softmax_cross_entropy, kSoftmax, "softmax", kTwice, kWithoutSoftmax},
    {LossKind::nll, kSoftmax, "softmax", "the loss is wrong", kWithoutSoftmax},
    {LossKind::bce,
     {"aten::sigmoid", "aten::sigmoid_"},
     "sigmoid",
     kTwice,
     "remove the sigmoid from the network"}};

// Warns if the network ends in a softmax, but the loss needs the values before it.
void warn_of_doubled_function(const Loss& loss, const Graph& graph) {
  const Node* end = loss.own ? nullptr : output_node(graph);
  for (const auto& row : kDoubled) {
    if (end != nullptr && row.loss == loss.kind &&
        std::count(row.operators.begin(), row.operators.end(), end->target) > 0) {
      log_warning(fmt::format(
          "[model] {}, because the network ends in a {} ({}), which loss {} does not "
          "expect; {}",
          row.effect, row.function, name_for_messages(*end), name_of(loss.kind),
          row.fix));
    }
  }
}

}  // namespace

void check_model(
    const RunConfig& config, const Model& model, const Loss& loss,
    const Communicator& comm) {
  const Graph* graph = model.graph();
  if (graph == nullptr) {
    return;
  }
  check_graph(config, *graph, comm.size());
  check_gradients(*graph, comm.rank() == 0);
  if (comm.rank() == 0) {
    warn_of_doubled_function(loss, *graph);
  }
}

}  // namespace tandem
