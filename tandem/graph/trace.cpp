#include "tandem/graph/trace.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/graph/effects.h"
#include "tandem/graph/interpreter.h"
#include "tandem/graph/operators.h"
#include "tandem/graph/recording.h"

namespace tandem {

namespace {

// Numbers of samples. 1 is special in LibTorch (squeeze, broadcasting), and batch norm
// needs 2 in training.
constexpr int64_t kTraced = 2;
constexpr int64_t kTracedNext = 3;
constexpr int64_t kCompared = 5;

// Calls `call`, and turns errors into NoGraph: `prefix`, then the error's first line.
template <typename Call>
auto with_reason(const std::string& prefix, const Call& call) {
  try {
    return call();
  } catch (const NoGraph&) {
    throw;
  } catch (const std::exception& error) {
    throw NoGraph(prefix + ": " + first_line(error));
  }
}

// --- comparison of traces

// Throws NoGraph unless both graphs call the same operators. `between` is for messages.
void check_operators(const Graph& a, const Graph& b, const std::string& between) {
  for (size_t i = 0; i < std::max(a.nodes.size(), b.nodes.size()); ++i) {
    const auto text = [i](const Graph& graph) {
      return i < graph.nodes.size() ? operator_name(graph.nodes[i]) : "none";
    };
    if (text(a) != text(b)) {
      throw NoGraph(
          between + " call different operators: " + text(a) + " and " + text(b));
    }
  }
  if (a.values.size() != b.values.size() || a.output != b.output) {
    throw NoGraph(between + " use different tensors");
  }
}

Size size_between(int64_t a, int64_t b) {
  const int64_t per_sample = (b - a) / (kTracedNext - kTraced);
  return {a - per_sample * kTraced, per_sample};
}

// Merges the arguments of a call with kTraced and with kTracedNext samples. Returns
// nothing if they differ in more than integers.
std::optional<Argument> merged(const Argument& a, const Argument& b) {
  if (a.kind != b.kind || a.value != b.value || a.list.size() != b.list.size()) {
    return std::nullopt;
  }
  if (a.kind == Argument::Kind::list) {
    Argument list = Argument::of_list({});
    for (size_t i = 0; i < a.list.size(); ++i) {
      const auto element = merged(a.list[i], b.list[i]);
      if (!element) {
        return std::nullopt;
      }
      list.list.push_back(*element);
    }
    return list;
  }
  if (a.kind == Argument::Kind::value || a.constant == b.constant) {
    return a;
  }
  if (a.constant.isInt() && b.constant.isInt()) {
    return Argument::of_size(size_between(a.constant.toInt(), b.constant.toInt()));
  }
  if (!a.constant.isIntList() || !b.constant.isIntList() ||
      a.constant.toIntVector().size() != b.constant.toIntVector().size()) {
    return std::nullopt;
  }
  Argument list = Argument::of_list({});
  for (size_t i = 0; i < a.constant.toIntVector().size(); ++i) {
    const int64_t x = a.constant.toIntVector()[i];
    const int64_t y = b.constant.toIntVector()[i];
    list.list.push_back(
        x == y ? Argument::of(x) : Argument::of_size(size_between(x, y)));
  }
  return list;
}

// Merges the graphs of kTraced and of kTracedNext samples.
Graph merged(const Graph& a, const Graph& b) {
  const std::string between =
      fmt::format("batches of {} and {} samples", kTraced, kTracedNext);
  check_operators(a, b, between);
  Graph graph = a;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    Value& value = graph.values[i];
    const Value& other = b.values[i];
    if (value.kind == ValueKind::constant && !value.tensor.equal(other.tensor)) {
      throw NoGraph("a tensor that is not a buffer differs from call to call");
    }
    if (value.shape.size() != other.shape.size()) {
      throw NoGraph(between + " have tensors of different dimensions");
    }
    for (size_t d = 0; d < value.shape.size(); ++d) {
      value.shape[d] = size_between(value.shape[d].fixed, other.shape[d].fixed);
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    for (size_t j = 0; j < node.arguments.size(); ++j) {
      const auto both = merged(node.arguments[j], b.nodes[i].arguments[j]);
      if (!both || node.outputs != b.nodes[i].outputs) {
        throw NoGraph(fmt::format(
            "the argument '{}' of {} differs from call to call",
            schema_of(node).arguments()[j].name(), node.target));
      }
      node.arguments[j] = *both;
    }
  }
  return graph;
}

bool equal(const Argument& a, const Argument& b) {
  if (a.kind != b.kind || a.value != b.value || !(a.size == b.size) ||
      a.list.size() != b.list.size() || a.constant != b.constant) {
    return false;
  }
  for (size_t i = 0; i < a.list.size(); ++i) {
    if (!equal(a.list[i], b.list[i])) {
      return false;
    }
  }
  return true;
}

// Returns the number or truth of the argument with this name, or `missing`.
double number(const Node& node, const std::string& name, double missing) {
  const auto index = schema_of(node).argumentIndexWithName(name);
  if (!index) {
    return missing;
  }
  const auto& value = node.arguments[static_cast<size_t>(*index)].constant;
  return value.isBool()     ? static_cast<double>(value.toBool())
         : value.isScalar() ? value.toScalar().toDouble()
                            : missing;
}

// Returns whether the interpreter, which sets the modes, computes both calls. `name` is
// an argument that depends on the mode.
bool follows_mode(
    const Node& training, const Node& evaluation, const std::string& name) {
  const auto& row = operator_row(training.target);
  const bool trains = number(training, name, 0) != 0;
  const bool evaluates = number(evaluation, name, 0) == 0;
  if (row.has(kIsBatchNorm)) {
    // Without running statistics, evaluation also uses the batch.
    return evaluates || (trains && training.arguments[3].kind != Argument::Kind::value);
  }
  if (row.has(kIsDropout)) {
    return evaluates || number(training, "p", 1) == 0;
  }
  if (training.target == "aten::scaled_dot_product_attention") {
    return evaluates;
  }
  // Recurrent networks have both arguments.
  return (!trains && evaluates) || number(training, "dropout", 1) == 0;
}

// Throws NoGraph unless `training` also describes evaluation, in which the interpreter
// changes no buffer.
void check_modes(const Graph& training, const Graph& evaluation) {
  const Effects effects(evaluation);
  for (const auto& node : evaluation.nodes) {
    if (effects.changes_state(node)) {
      throw NoGraph(node.target + " changes a buffer in evaluation");
    }
  }
  const Graph computing = needed_part(training, false);
  check_operators(computing, evaluation, "training and evaluation");
  for (size_t i = 0; i < computing.nodes.size(); ++i) {
    const Node& node = computing.nodes[i];
    const Node& other = evaluation.nodes[i];
    for (size_t j = 0; j < node.arguments.size(); ++j) {
      const std::string& name = schema_of(node).arguments()[j].name();
      const bool mode = name == "training" || name == "train" || name == "dropout_p";
      if (mode ? !follows_mode(node, other, name)
               : !equal(node.arguments[j], other.arguments[j])) {
        throw NoGraph(fmt::format(
            "the argument '{}' of {}{} does not follow the training mode", name,
            node.target, node.module.empty() ? "" : " in '" + node.module + "'"));
      }
    }
  }
}

bool has_dropout(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if ((operator_row(node.target).has(kIsDropout) && number(node, "p", 1) != 0) ||
        number(node, "dropout_p", 0) != 0) {
      return true;
    }
  }
  return false;
}

// --- running the function and the graph

// Saves tensors and the CPU's generator.
class SavedState {
 public:
  explicit SavedState(const Graph& state)
      : generator_(at::detail::getDefaultCPUGenerator()) {
    for (const auto& value : state.values) {
      if (value.tensor.defined()) {
        tensors_.emplace_back(value.tensor, value.tensor.detach().clone());
      }
    }
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    random_ = generator_.get_state();
  }
  void restore() {
    const at::NoGradGuard no_grad;
    for (auto& [tensor, values] : tensors_) {
      tensor.copy_(values);
    }
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(random_);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;
  at::Generator generator_;
  at::Tensor random_;
};

class Tracer {
 public:
  Tracer(
      const TraceableFunction& function, std::vector<int64_t> sample_shape,
      at::ScalarType dtype)
      : function_(function), sample_shape_(std::move(sample_shape)), dtype_(dtype) {}

  Graph trace() {
    const Graph state = state_of(function_, {}, dtype_);
    SavedState saved(state);
    try {
      // The buffers are not restored between two traces, so that a constant that
      // depends on them differs.
      const Graph training = traced(true);
      const Graph evaluation = traced(false);
      check_modes(training, evaluation);
      verify(training);
      compare(training, false, saved);
      if (!has_dropout(training)) {
        compare(training, true, saved);
      }
      saved.restore();
      set_training(true);
      return training;
    } catch (...) {
      saved.restore();
      set_training(true);
      throw;
    }
  }

 private:
  void set_training(bool training) const {
    if (function_.set_training) {
      function_.set_training(training);
    }
  }

  std::vector<int64_t> input_shape(int64_t samples) const {
    std::vector<int64_t> shape = {samples};
    shape.insert(shape.end(), sample_shape_.begin(), sample_shape_.end());
    return shape;
  }

  at::Tensor random(const std::vector<int64_t>& shape, at::ScalarType dtype) {
    const auto options = at::TensorOptions().dtype(dtype);
    const auto values = at::isFloatingType(dtype)
                            ? at::randn(shape, generator_, options)
                            : at::randint(0, 2, shape, generator_, options);
    const auto& state =
        function_.parameters.empty() ? function_.buffers : function_.parameters;
    return state.empty() ? values : values.to(state[0].tensor.device());
  }

  Graph traced(bool training) {
    set_training(training);
    return merged(traced(kTraced), traced(kTracedNext));
  }

  Graph traced(int64_t samples) {
    const Graph state = state_of(function_, input_shape(samples), dtype_);
    torch::jit::Stack inputs = {random(input_shape(samples), dtype_)};
    for (size_t i = 1; i < state.values.size(); ++i) {
      inputs.emplace_back(state.values[i].tensor);
    }
    const auto call = [&](const torch::jit::Stack& stack) {
      const torch::jit::tracer::NoWarn no_warnings;
      return torch::jit::Stack{function_.forward(stack[0].toTensor())};
    };
    const at::NoGradGuard no_grad;
    const auto recording =
        with_reason(fmt::format("a call with {} samples fails", samples), [&] {
          return torch::jit::tracer::trace(
              std::move(inputs), call, [](const at::Tensor&) { return std::string(); });
        });
    return graph_of(*recording.first->graph, state);
  }

  // Returns outputs, gradients and buffers of two forward passes. The gradients are
  // those of the first pass, if `output_gradient` is defined.
  std::vector<NamedTensor> results(
      const std::function<at::Tensor(const at::Tensor&)>& forward,
      const std::vector<at::Tensor>& inputs, const at::Tensor& output_gradient) const {
    std::vector<NamedTensor> all;
    std::vector<at::Tensor> leaves;
    for (const auto& parameter : function_.parameters) {
      if (parameter.tensor.requires_grad()) {
        leaves.push_back(parameter.tensor);
      }
    }
    for (const auto& input : inputs) {
      const c10::AutoGradMode with_gradients(true);
      const auto output = forward(input.clone());
      all.push_back({"outputs", output.detach().clone()});
      if (output_gradient.defined() && output.requires_grad() &&
          output.sizes() == output_gradient.sizes()) {
        for (const auto& gradient : torch::autograd::grad(
                 {output}, leaves, {output_gradient}, c10::nullopt, false, true)) {
          all.push_back({"gradients", gradient});
        }
      }
    }
    for (const auto& buffer : function_.buffers) {
      all.push_back({"buffers", buffer.tensor.detach().clone()});
    }
    return all;
  }

  void compare(const Graph& graph, bool training, SavedState& saved) {
    set_training(training);
    Interpreter interpreter(graph, {});
    ForwardContext context;
    context.training = training;
    // LibTorch treats a batch of 1 sample specially, and batch norm rejects it in
    // training.
    const std::vector<at::Tensor> inputs = {
        random(input_shape(kCompared), dtype_),
        random(input_shape(training ? kTraced : 1), dtype_)};
    // Gradients in training suffice, unless dropout prevents the comparison there.
    at::Tensor gradient;
    if (training || has_dropout(graph)) {
      const Value& output = graph.value(graph.output);
      gradient = random(sizes_at(output.shape, kCompared), output.dtype);
    }
    saved.restore();
    const auto samples =
        fmt::format("{} or {} samples", kCompared, training ? kTraced : 1);
    const auto expected = with_reason("a call with " + samples + " fails", [&] {
      return results(function_.forward, inputs, gradient);
    });
    saved.restore();
    const auto found = with_reason("the trace fails with " + samples, [&] {
      return results(
          [&](const at::Tensor& input) { return interpreter.run(input, context); },
          inputs, gradient);
    });
    check(
        expected, found, (training ? "training with " : "evaluation with ") + samples);
  }

  static bool close(const at::Tensor& a, const at::Tensor& b) {
    if (!a.defined() || !b.defined()) {
      return a.defined() == b.defined();
    }
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
      return false;
    }
    if (!at::isFloatingType(a.scalar_type()) || a.numel() == 0) {
      return a.equal(b);
    }
    // Tolerances allow for another order of attention's sums.
    const double tolerance = a.scalar_type() == at::kDouble  ? 1e-12
                             : a.scalar_type() == at::kFloat ? 1e-4
                                                             : 2e-2;
    return at::allclose(
        a, b, tolerance, tolerance * b.abs().max().item<double>(), true);
  }

  static void check(
      const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& found,
      const std::string& where) {
    bool same = expected.size() == found.size();
    std::string what = "gradients";
    for (size_t i = 0; same && i < expected.size(); ++i) {
      what = expected[i].name;
      same = close(found[i].tensor, expected[i].tensor);
    }
    if (!same) {
      throw NoGraph("the trace's " + what + " differ from the function's in " + where);
    }
  }

  const TraceableFunction& function_;
  std::vector<int64_t> sample_shape_;
  at::ScalarType dtype_;
  // Independent of LibTorch's global generator.
  at::Generator generator_ = at::make_generator<at::CPUGeneratorImpl>(1);
};

}  // namespace

Graph trace(
    const TraceableFunction& function, const std::vector<int64_t>& sample_shape,
    at::ScalarType dtype) {
  return with_reason("the trace is no graph", [&] {
    return Tracer(function, sample_shape, dtype).trace();
  });
}

}  // namespace tandem
