#include "tandem/graph/random_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tandem/base/error.h"
#include "tandem/graph/call_recorder.h"

namespace tandem {

namespace {

// Returns the dimension that grows with the number of samples, if any.
std::optional<size_t> sample_dimension(const std::vector<Size>& shape) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].per_sample != 0) {
      return i;
    }
  }
  return std::nullopt;
}

using Draw = std::function<at::Tensor(
    const SampleContext& context, int64_t samples, int64_t elements)>;

// Calls `draw` with the values that determine the random numbers, the number of samples
// and the number of elements per sample, and returns its rows as a tensor of `sizes`.
// In evaluation, the seed is 0. A recording keeps `draw`.
at::Tensor draw_per_sample(
    const OperatorCall& call, std::vector<int64_t> sizes,
    const std::vector<Size>& shape, Draw draw) {
  const auto dimension = sample_dimension(shape);
  int64_t samples = 1;
  if (dimension) {
    // A dimension such as N * heads has several rows per sample.
    const int64_t rows = sizes.at(*dimension);
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(*dimension));
    sizes.insert(sizes.begin(), rows);
    samples = call.samples > 0 && rows % call.samples == 0 ? call.samples : rows;
  }
  const int64_t elements = samples == 0 ? 0 : c10::multiply_integers(sizes) / samples;
  const auto drawn = draw_recorded(
      call.context.samples, [=, training = call.context.training,
                             draw = std::move(draw)](SampleContext context) {
        if (!training) {
          context.seed = 0;
          context.epoch = context.step_position = 0;
        }
        if (!dimension) {
          context.first_position = context.step_position;
        }
        return draw(context, samples, elements);
      });
  const auto rows = drawn.view(sizes);
  return dimension ? rows.movedim(0, static_cast<int64_t>(*dimension)) : rows;
}

// Returns a mask for a tensor of `sizes`: 0 with probability `p`, otherwise 1 / (1 -
// p).
at::Tensor mask_for(
    const OperatorCall& call, const std::vector<int64_t>& sizes,
    const std::vector<Size>& shape, double p, const at::TensorOptions& options) {
  const auto dtype =
      options.dtype() == at::kDouble ? at::ScalarType::Double : at::ScalarType::Float;
  return draw_per_sample(
             call, sizes, shape,
             [=, layer = call.node.number](
                 const SampleContext& context, int64_t samples, int64_t elements) {
               return dropout_mask(
                   context, layer, samples, elements, p, options.dtype(dtype));
             })
      .to(c10::typeMetaToScalarType(options.dtype()));
}

// Returns uniform random numbers in (0, 1), float64, on the CPU.
at::Tensor uniform_for(
    const OperatorCall& call, const std::vector<int64_t>& sizes,
    const std::vector<Size>& shape) {
  return draw_per_sample(
      call, sizes, shape,
      [layer = call.node.number](
          const SampleContext& context, int64_t samples, int64_t elements) {
        return uniform_numbers(context, layer, samples, elements);
      });
}

// Returns the shape of the node's result: of its output or, if no node reads the
// output, of the tensor that the node changes.
const std::vector<Size>& shape_of_result(const OperatorCall& call) {
  const ValueId id =
      call.node.outputs[0] >= 0 ? call.node.outputs[0] : call.node.arguments[0].value;
  return call.graph.value(id).shape;
}

bool is_in_place(const OperatorCall& call) {
  return call.node.target.back() == '_';
}

// Returns whether (input, p, train) drops elements. `train` is false for a frozen
// module.
bool drops(const OperatorCall& call) {
  return call.context.training && call.arguments[2].toBool() &&
         call.arguments[1].toDouble() != 0;
}

// Returns the mask of (input, p, train). Channel dropout has one random number for each
// channel.
at::Tensor mask_of_input(const OperatorCall& call, const at::Tensor& x) {
  auto sizes = x.sizes().vec();
  if (call.node.target.find("feature") != std::string::npos && sizes.size() > 2) {
    std::fill(sizes.begin() + 2, sizes.end(), 1);
  }
  return mask_for(
      call, sizes, call.graph.value(call.node.arguments[0].value).shape,
      call.arguments[1].toDouble(), x.options());
}

// --- distributions

// Reads the arguments of a call by the names in the schema.
class CallArguments {
 public:
  explicit CallArguments(const OperatorCall& call)
      : call_(call), schema_(schema_of(call.node)) {}

  // Returns null if the schema has no such argument, or if the argument is None.
  const c10::IValue* find(const std::string& name) const {
    const auto index = schema_.argumentIndexWithName(name);
    const c10::IValue* value =
        index ? &call_.arguments[static_cast<size_t>(*index)] : nullptr;
    return value == nullptr || value->isNone() ? nullptr : value;
  }

  // Returns a number, or a tensor of numbers as float64 on the CPU.
  at::Tensor numbers(const std::string& name, double missing = 0) const {
    const c10::IValue* value = find(name);
    if (value != nullptr && value->isTensor()) {
      return value->toTensor().detach().to(at::kCPU, at::kDouble);
    }
    return at::full(
        {}, value == nullptr ? missing : value->toScalar().toDouble(), at::kDouble);
  }

  int64_t integer(const std::string& name, int64_t missing) const {
    const c10::IValue* value = find(name);
    return value == nullptr ? missing : value->toInt();
  }

 private:
  const OperatorCall& call_;
  const c10::FunctionSchema& schema_;
};

at::Tensor normal_numbers(const at::Tensor& uniform) {
  return uniform.mul(2).sub(1).erfinv().mul(std::sqrt(2));
}

// A distribution: its random numbers, computed from uniform ones, and its mean.
struct Distribution {
  std::function<at::Tensor(const CallArguments&, const at::Tensor& uniform)> draw;
  // Empty for integers, which have no mean of their type.
  std::function<at::Tensor(const CallArguments&)> mean = {};
};

// bernoulli(self) has probabilities in `self`; other overloads have an argument p.
at::Tensor probabilities(const CallArguments& arguments) {
  return arguments.numbers(arguments.find("p") != nullptr ? "p" : "self", 0.5);
}

// Draws integers in [low, high). Without a bound, random_() draws all integers of
// float32's mantissa.
at::Tensor whole_numbers(const CallArguments& arguments, const at::Tensor& uniform) {
  const int64_t low = arguments.integer("from", arguments.integer("low", 0));
  const int64_t high =
      arguments.integer("to", arguments.integer("high", int64_t{1} << 24));
  return uniform.mul(static_cast<double>(high - low))
      .floor()
      .clamp_max(static_cast<double>(high - low - 1))
      .add(static_cast<double>(low));
}

// uniform_(from, to) and rand(): numbers that are less than `to` in float32 too.
at::Tensor uniform_between(const CallArguments& arguments, const at::Tensor& uniform) {
  const auto from = arguments.numbers("from", 0);
  const auto width = arguments.numbers("to", 1).sub(from);
  return uniform.clamp_max(1 - 0x1p-24).mul(width).add(from);
}

// Source: torch.distributions, by inversion of the distribution functions.
const std::map<std::string, Distribution>& distributions() {
  using A = CallArguments;
  using T = at::Tensor;
  const Distribution uniform = {
      &uniform_between,
      [](const A& a) { return a.numbers("from", 0).add(a.numbers("to", 1)).mul(0.5); }};
  // Without arguments, as for randn(), the mean is 0 and the deviation 1.
  const Distribution normal = {
      [](const A& a, const T& u) {
        return normal_numbers(u).mul(a.numbers("std", 1)).add(a.numbers("mean"));
      },
      [](const A& a) { return a.numbers("mean"); }};
  const Distribution integers = {&whole_numbers};
  static const std::map<std::string, Distribution> all = {
      {"bernoulli",
       {[](const A& a, const T& u) { return u.lt(probabilities(a)).to(at::kDouble); },
        &probabilities}},
      {"cauchy_",
       {[](const A& a, const T& u) {
          return u.sub(0.5)
              .mul(M_PI)
              .tan()
              .mul(a.numbers("sigma"))
              .add(a.numbers("median"));
        },
        [](const A& a) { return a.numbers("median"); }}},
      {"exponential_",
       {[](const A& a, const T& u) { return u.log().neg().div(a.numbers("lambd")); },
        [](const A& a) { return a.numbers("lambd").reciprocal(); }}},
      {"geometric_",
       {[](const A& a, const T& u) {
          return u.log().div(a.numbers("p").neg().log1p()).ceil().clamp_min(1);
        },
        [](const A& a) { return a.numbers("p").reciprocal(); }}},
      {"log_normal_",
       {[](const A& a, const T& u) {
          return normal_numbers(u).mul(a.numbers("std")).add(a.numbers("mean")).exp();
        },
        [](const A& a) {
          return a.numbers("mean").add(a.numbers("std").square().mul(0.5)).exp();
        }}},
      {"normal", normal},
      {"uniform_", uniform},
      {"rand", uniform},
      {"rand_like", uniform},
      {"randn", normal},
      {"randn_like", normal},
      {"random_", integers},
      {"randint", integers},
      {"randint_like", integers},
  };
  return all;
}

const Distribution& distribution_of(const std::string& target) {
  static const std::string kStart = "aten::";
  const std::string name = target.substr(kStart.size());
  auto found = distributions().find(name);
  if (found == distributions().end() && name.back() == '_') {
    found = distributions().find(name.substr(0, name.size() - 1));
  }
  TANDEM_CHECK(found != distributions().end(), "no distribution for " + target);
  return found->second;
}

// Returns the dtype of a call's result: of the argument `dtype`, of the tensor `self`,
// or of the graph's output.
at::ScalarType dtype_of_result(
    const OperatorCall& call, const CallArguments& arguments) {
  if (const auto* dtype = arguments.find("dtype")) {
    return dtype->toScalarType();
  }
  const auto* self = arguments.find("self");
  return self != nullptr && self->isTensor()
             ? self->toTensor().scalar_type()
             : call.graph.value(call.node.outputs[0]).dtype;
}

// Returns the sizes of a call's result.
std::vector<int64_t> sizes_of_result(
    const OperatorCall& call, const CallArguments& arguments) {
  const auto* self = arguments.find("self");
  return self != nullptr && self->isTensor()
             ? self->toTensor().sizes().vec()
             : sizes_at(shape_of_result(call), call.samples);
}

// --- recurrent networks

// Returns the arguments of a recurrent operator, (input, hx, params, has_biases,
// num_layers, dropout, train, bidirectional, batch_first), for one of its layers.
std::vector<c10::IValue> arguments_of_layer(
    std::vector<c10::IValue> arguments, int64_t layer, int64_t layers) {
  const auto part = [&](const at::Tensor& state) {
    const int64_t directions = state.size(0) / layers;
    return state.narrow(0, layer * directions, directions);
  };
  if (arguments[1].isTensorList()) {
    auto states = arguments[1].toTensorVector();
    std::transform(states.begin(), states.end(), states.begin(), part);
    arguments[1] = states;
  } else {
    arguments[1] = part(arguments[1].toTensor());
  }
  const auto params = arguments[2].toTensorVector();
  const auto count = static_cast<std::ptrdiff_t>(params.size()) / layers;
  const auto begin = params.begin() + layer * count;
  arguments[2] = std::vector<at::Tensor>(begin, begin + count);
  arguments[4] = int64_t{1};
  arguments[5] = 0.0;
  arguments[6] = true;
  return arguments;
}

// LibTorch reads as many weights and states as the layers need, without a check.
void check_recurrent(const std::vector<c10::IValue>& arguments) {
  const auto states = arguments[1].isTensorList()
                          ? arguments[1].toTensorVector()
                          : std::vector<at::Tensor>{arguments[1].toTensor()};
  const auto params = arguments[2].toTensorVector();
  const int64_t cells = arguments[4].toInt() * (arguments[7].toBool() ? 2 : 1);
  TORCH_CHECK(
      arguments[1].isTensor() || states.size() == 2, "hx has ", states.size(),
      " tensors, expected 2");
  for (const auto& state : states) {
    TORCH_CHECK(
        cells > 0 && state.dim() == 3 && state.size(0) == cells, "hx has the shape ",
        state.sizes(), ", expected ", cells, " states");
  }
  const bool projects = states.back().size(2) != states.front().size(2);
  const int64_t of_cell = (arguments[3].toBool() ? 4 : 2) + (projects ? 1 : 0);
  TORCH_CHECK(
      static_cast<int64_t>(params.size()) == cells * of_cell, "there are ",
      params.size(), " weights, expected ", cells * of_cell);
  TORCH_CHECK(arguments[0].toTensor().dim() == 3, "the input is not a sequence");
}

// Returns a mask for the output of each layer except the last; `x` is such an output.
at::Tensor masks_between(
    const OperatorCall& call, const at::Tensor& x, int64_t layers, double p) {
  auto sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), layers - 1);
  auto shape = call.graph.value(call.node.arguments[0].value).shape;
  shape.insert(shape.begin(), Size{layers - 1, 0});
  return mask_for(call, sizes, shape, p, x.options());
}

}  // namespace

at::Tensor dropped_out(
    const OperatorCall& call, const at::Tensor& x, const std::vector<Size>& shape,
    double p) {
  return !call.context.training || p == 0
             ? x
             : x.mul(mask_for(call, x.sizes().vec(), shape, p, x.options()));
}

at::Tensor run_dropout(const OperatorCall& call) {
  at::Tensor x = call.arguments[0].toTensor();
  if (!drops(call)) {
    return x;
  }
  const auto mask = mask_of_input(call, x);
  return is_in_place(call) ? x.mul_(mask) : x.mul(mask);
}

at::Tensor run_alpha_dropout(const OperatorCall& call) {
  at::Tensor x = call.arguments[0].toTensor();
  if (!drops(call)) {
    return x;
  }
  const double p = call.arguments[1].toDouble();
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  const auto kept = mask_of_input(call, x).mul(1 - p);
  const auto offset = kept.sub(1).mul(kAlpha * a).add(kAlpha * a * p);
  return is_in_place(call) ? x.mul_(kept.mul(a)).add_(offset)
                           : x.mul(kept.mul(a)).add(offset);
}

at::Tensor run_rrelu(const OperatorCall& call) {
  at::Tensor x = call.arguments[0].toTensor();
  const double lower = call.arguments[1].toScalar().toDouble();
  const double upper = call.arguments[2].toScalar().toDouble();
  const auto slope = call.context.training
                         ? uniform_for(call, x.sizes().vec(), shape_of_result(call))
                               .mul(upper - lower)
                               .add(lower)
                               .to(x.options())
                         : at::full({}, (lower + upper) / 2, x.options());
  const auto factor = at::where(x.lt(0), slope, at::full({}, 1.0, x.options()));
  return is_in_place(call) ? x.mul_(factor) : x.mul(factor);
}

at::Tensor run_distribution(const OperatorCall& call) {
  const CallArguments arguments(call);
  const auto& distribution = distribution_of(call.node.target);
  const auto sizes = sizes_of_result(call, arguments);
  const auto numbers =
      call.context.training || !distribution.mean
          ? distribution.draw(
                arguments, uniform_for(call, sizes, shape_of_result(call)))
          : distribution.mean(arguments).expand(sizes);
  if (is_in_place(call)) {
    return call.arguments[0].toTensor().copy_(numbers);
  }
  return numbers.to(call.device, dtype_of_result(call, arguments)).contiguous();
}

at::Tensor run_multinomial(const OperatorCall& call) {
  const auto weights = call.arguments[0].toTensor().detach().to(at::kCPU, at::kDouble);
  const int64_t count = call.arguments[1].toInt();
  TORCH_CHECK(
      weights.dim() == 1 || weights.dim() == 2, "the weights have ", weights.dim(),
      " dimensions, expected 1 or 2");
  const auto& shape = call.graph.value(call.node.arguments[0].value).shape;
  if (call.arguments[2].toBool()) {
    auto sizes = weights.sizes().vec();
    sizes.back() = count;
    const auto uniform = uniform_for(call, sizes, shape);
    const auto sums = weights.cumsum(-1);
    const auto drawn = uniform.mul(sums.narrow(-1, sums.size(-1) - 1, 1));
    // The number of partial sums that the drawn number reaches.
    return sums.unsqueeze(-2)
        .le(drawn.unsqueeze(-1))
        .sum(-1)
        .clamp_max(weights.size(-1) - 1)
        .to(call.device);
  }
  // Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
  const auto uniform = uniform_for(call, weights.sizes().vec(), shape);
  return std::get<1>(uniform.log().div(weights).topk(count, -1)).to(call.device);
}

at::Tensor run_randperm(const OperatorCall& call) {
  const int64_t count = call.arguments[0].toInt();
  return uniform_for(call, {count}, {Size{count, 0}})
      .argsort()
      .to(call.device, dtype_of_result(call, CallArguments(call)));
}

std::vector<c10::IValue> run_recurrent(const OperatorCall& call) {
  check_recurrent(call.arguments);
  auto stack = call.arguments;
  const double p = stack[5].toDouble();
  const int64_t layers = stack[4].toInt();
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
      call.node.target.c_str(), call.node.overload.c_str());
  if (!call.context.training || p == 0 || layers < 2) {
    stack[5] = 0.0;
    stack[6] = call.context.training;
    handle.callBoxed(&stack);
    return stack;
  }
  at::Tensor x = stack[0].toTensor();
  at::Tensor masks;
  std::vector<std::vector<at::Tensor>> states;
  for (int64_t layer = 0; layer < layers; ++layer) {
    stack = arguments_of_layer(call.arguments, layer, layers);
    stack[0] = layer == 0 ? x : x.mul(masks[layer - 1]);
    handle.callBoxed(&stack);
    x = stack[0].toTensor();
    masks = layer == 0 ? masks_between(call, x, layers, p) : masks;
    states.resize(stack.size() - 1);
    for (size_t i = 0; i < states.size(); ++i) {
      states[i].push_back(stack[i + 1].toTensor());
    }
  }
  std::vector<c10::IValue> outputs = {x};
  for (const auto& of_layers : states) {
    outputs.emplace_back(at::cat(of_layers, 0));
  }
  return outputs;
}

bool draws_random_numbers(const Node& node) {
  const auto& schema = schema_of(node);
  for (const char* name : {"dropout", "dropout_p"}) {
    if (schema.argumentIndexWithName(name)) {
      return false;
    }
  }
  if (operator_row(node.target).has(kIsDropout)) {
    return false;
  }
  const auto& arguments = schema.arguments();
  const bool has_generator = std::any_of(
      arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
        return without_optional(argument.type())->kind() ==
               c10::TypeKind::GeneratorType;
      });
  const auto found = c10::Dispatcher::singleton().findSchema(
      {node.target.c_str(), node.overload.c_str()});
  return has_generator ||
         (found.has_value() && found->hasTag(at::Tag::nondeterministic_seeded));
}

}  // namespace tandem
