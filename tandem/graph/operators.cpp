#include "tandem/graph/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/log_softmax.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "tandem/graph/attention.h"
#include "tandem/graph/random_operators.h"
#include "tandem/graph/single_values.h"

namespace tandem {

namespace {

// To write a value and read it again takes a CPU about as long as this number of
// multiplications. Without this term, the cost of a first convolution would be too low.
constexpr double kCostPerValue = 10;

// --- multiplications

const std::vector<Size>& shape_of(const Graph& graph, const Node& node, size_t index) {
  static const std::vector<Size> none;
  const Argument& argument = node.arguments[index];
  return argument.kind == Argument::Kind::value ? graph.value(argument.value).shape
                                                : none;
}

double elements(const std::vector<Size>& shape) {
  double product = 1;
  for (const auto& size : shape) {
    product *= static_cast<double>(size.at(1));
  }
  return product;
}

double output_elements(const Graph& graph, const Node& node) {
  const ValueId id = node.outputs.empty() ? -1 : node.outputs[0];
  return id < 0 ? 0 : elements(graph.value(id).shape);
}

double last_size(const std::vector<Size>& shape) {
  return shape.empty() ? 0 : static_cast<double>(shape.back().at(1));
}

// The weight's first dimension is the number of output channels.
double convolution_multiplications(const Graph& graph, const Node& node) {
  const auto& weight = shape_of(graph, node, 1);
  return weight.empty() ? 0
                        : output_elements(graph, node) * elements(weight) /
                              static_cast<double>(weight[0].at(1));
}

double product_multiplications(const Graph& graph, const Node& node) {
  return output_elements(graph, node) * last_size(shape_of(graph, node, 0));
}

// linear(input, weight, bias), addmm(bias, a, b)
double linear_multiplications(const Graph& graph, const Node& node) {
  return output_elements(graph, node) * last_size(shape_of(graph, node, 1));
}

// Products of queries and keys, and of weights and values.
double attention_multiplications(const Graph& graph, const Node& node) {
  const auto& key = shape_of(graph, node, 1);
  return key.size() < 2 ? 0
                        : 2 * elements(shape_of(graph, node, 0)) *
                              static_cast<double>(key[key.size() - 2].at(1));
}

// --- operators that tandem computes

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isNone() ? at::Tensor() : value.toTensor();
}

// batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
// cudnn_enabled)
at::Tensor run_batch_norm(const OperatorCall& call) {
  const auto& arguments = call.arguments;
  const auto x = arguments[0].toTensor();
  const auto weight = optional_tensor(arguments[1]);
  const auto bias = optional_tensor(arguments[2]);
  auto mean = optional_tensor(arguments[3]);
  auto variance = optional_tensor(arguments[4]);
  const double momentum = arguments[6].toDouble();
  const double epsilon = arguments[7].toDouble();
  // Without running statistics, evaluation also uses the batch. Frozen batch norm never
  // uses the batch.
  const bool frozen = mean.defined() && !arguments[5].toBool();
  const bool training = (call.context.training && !frozen) || !mean.defined();
  const bool synchronizes = training && call.stack_statistics && mean.defined();
  if (training && call.context.again) {
    mean.reset();
    variance.reset();
  }
  if (synchronizes) {
    return sync_batch_norm(
        x, weight, bias, mean, variance, momentum, epsilon, call.stack_statistics,
        name_for_messages(call.node));
  }
  if (training && call.context.training && x.numel() > 0) {
    check_values_per_channel(x.numel() / x.size(1), name_for_messages(call.node));
  }
  return at::batch_norm(
      x, weight, bias, mean, variance, training, momentum, epsilon, false);
}

// instance_norm(input, weight, bias, running_mean, running_var, use_input_stats,
// momentum, eps, cudnn_enabled)
at::Tensor run_instance_norm(const OperatorCall& call) {
  const auto& arguments = call.arguments;
  const auto mean = optional_tensor(arguments[3]);
  const bool frozen = mean.defined() && !arguments[5].toBool();
  const bool training = (call.context.training && !frozen) || !mean.defined();
  const bool keeps = training && call.context.again;
  return at::instance_norm(
      arguments[0].toTensor(), optional_tensor(arguments[1]),
      optional_tensor(arguments[2]), keeps ? at::Tensor() : mean,
      keeps ? at::Tensor() : optional_tensor(arguments[4]), training,
      arguments[6].toDouble(), arguments[7].toDouble(), false);
}

// Calls the operator of LibTorch, if this LibTorch has it.
std::optional<at::Tensor> run_own(
    const std::string& target, std::vector<c10::IValue> arguments) {
  const auto own = c10::Dispatcher::singleton().findSchema({target, ""});
  if (!own.has_value()) {
    return std::nullopt;
  }
  own->callBoxed(&arguments);
  return arguments[0].toTensor();
}

constexpr const char* kRmsNormSchema =
    "aten::rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, "
    "float? eps=None) -> Tensor";

// Source: torch.nn.RMSNorm's documentation.
at::Tensor run_rms_norm(const OperatorCall& call) {
  if (const auto own = run_own(call.node.target, call.arguments)) {
    return *own;
  }
  const auto x = call.arguments[0].toTensor();
  const auto count = static_cast<int64_t>(call.arguments[1].toIntVector().size());
  std::vector<int64_t> dims;
  for (int64_t d = x.dim() - count; d < x.dim(); ++d) {
    dims.push_back(d);
  }
  const double epsilon = !call.arguments[3].isNone() ? call.arguments[3].toDouble()
                         : x.scalar_type() == at::kDouble
                             ? std::numeric_limits<double>::epsilon()
                             : std::numeric_limits<float>::epsilon();
  const auto norm = x.mul(x.square().mean(dims, /*keepdim=*/true).add(epsilon).rsqrt());
  const auto weight = optional_tensor(call.arguments[2]);
  return weight.defined() ? norm.mul(weight) : norm;
}

// channel_shuffle(self, groups), for which LibTorch 1.13 has no derivative
at::Tensor run_channel_shuffle(const OperatorCall& call) {
  const auto x = call.arguments[0].toTensor();
  const int64_t groups = call.arguments[1].toInt();
  TORCH_CHECK(groups > 0, "groups is ", groups, ", expected 1 or more");
  return x.unflatten(1, {groups, x.size(1) / groups}).transpose(1, 2).flatten(1, 2);
}

// LibTorch returns the tensor itself, with a new gradient function. A parameter would
// then have no gradient.
at::Tensor run_lift(const OperatorCall& call) {
  return at::alias(call.arguments[0].toTensor());
}

// log_softmax(input, dim, dtype)
at::Tensor run_log_softmax(const OperatorCall& call) {
  const auto x = call.arguments[0].toTensor();
  const auto dtype =
      call.arguments[2].isNone()
          ? c10::optional<at::ScalarType>()
          : c10::optional<at::ScalarType>(call.arguments[2].toScalarType());
  // Under autocast, x is bfloat16, which is too coarse for losses near 0.01.
  return at::log_softmax(
      x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x,
      call.arguments[1].toInt(), dtype);
}

constexpr const char* kAttentionSchema =
    "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, "
    "Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, "
    "float? scale=None, bool enable_gqa=False) -> Tensor";

// Reads the arguments that this LibTorch's schema has.
Attention attention_of(const std::vector<c10::IValue>& arguments) {
  Attention attention;
  attention.query = arguments[0].toTensor();
  attention.key = arguments[1].toTensor();
  attention.value = arguments[2].toTensor();
  attention.mask = optional_tensor(arguments[3]);
  attention.is_causal = arguments[5].toBool();
  attention.scale = arguments.size() > 6 && !arguments[6].isNone()
                        ? arguments[6].toDouble()
                        : 1 / std::sqrt(static_cast<double>(attention.query.size(-1)));
  attention.grouped = arguments.size() > 7 && arguments[7].toBool();
  return attention;
}

at::Tensor run_attention(const OperatorCall& call) {
  const Attention attention = attention_of(call.arguments);
  const double dropout = call.arguments[4].toDouble();
  // LibTorch's operator fails on other devices without a kernel for attention.
  const bool has_kernel = attention.query.is_cpu() || attention.query.is_cuda();
  if (dropout == 0 || !call.context.training) {
    if (has_kernel) {
      auto arguments = call.arguments;
      arguments[4] = 0.0;
      if (const auto own = run_own(call.node.target, std::move(arguments))) {
        return *own;
      }
    }
    if (fits_attention_kernels(attention)) {
      return attention_by_kernels(attention);
    }
  }
  const auto weights = attention_weights(attention);
  return weighted_values(
      attention,
      dropped_out(call, weights, shape_of(call.graph, call.node, 0), dropout));
}

constexpr RoundedValues kNone = RoundedValues::none;
constexpr RoundedValues kOutput = RoundedValues::output;
constexpr RoundedValues kAll = RoundedValues::all;

// An operator that moves values without computing.
constexpr OperatorRow view(const char* name) {
  return {name, kNone, kIsView};
}

constexpr OperatorRow convolution(const char* name) {
  return {name, kAll, kKeepsOnlyInput, &convolution_multiplications};
}

constexpr OperatorRow product(const char* name) {
  return {name, kAll, kNoOperatorTrait, &product_multiplications};
}

constexpr OperatorRow dropout_row(
    const char* name, at::Tensor (*run)(const OperatorCall&) = &run_dropout) {
  return {name, kOutput, kIsDropout, nullptr, run};
}

constexpr OperatorRow random_row(
    const char* name, at::Tensor (*run)(const OperatorCall&) = &run_distribution) {
  return {name, kOutput, kNoOperatorTrait, nullptr, run};
}

constexpr OperatorRow recurrent_row(const char* name) {
  return {name, kOutput, kNoOperatorTrait, nullptr, nullptr, nullptr, &run_recurrent};
}

constexpr OperatorRow kRows[] = {
    convolution("aten::conv1d"),
    convolution("aten::conv2d"),
    convolution("aten::conv3d"),
    {"aten::linear", kAll, kKeepsOnlyInput, &linear_multiplications},
    product("aten::matmul"),
    product("aten::mm"),
    product("aten::bmm"),
    {"aten::addmm", kAll, kNoOperatorTrait, &linear_multiplications},
    {"aten::batch_norm", kOutput, kIsBatchNorm, nullptr, &run_batch_norm},
    {"aten::instance_norm", kOutput, kNoOperatorTrait, nullptr, &run_instance_norm},
    {"aten::rms_norm", kOutput, kNoOperatorTrait, nullptr, &run_rms_norm,
     kRmsNormSchema},
    {"aten::channel_shuffle", kNone, kNoOperatorTrait, nullptr, &run_channel_shuffle},
    {"aten::relu", kNone},
    {"aten::relu_", kNone},
    {"aten::max_pool2d", kNone},
    {"aten::embedding", kNone},
    dropout_row("aten::dropout"),
    dropout_row("aten::dropout_"),
    dropout_row("aten::feature_dropout"),
    dropout_row("aten::feature_dropout_"),
    {"aten::log_softmax", RoundedValues::output_in_o2, kNoOperatorTrait, nullptr,
     &run_log_softmax},
    {"aten::scaled_dot_product_attention", kAll, kNoOperatorTrait,
     &attention_multiplications, &run_attention, kAttentionSchema},
    view("aten::flatten"),
    view("aten::unflatten"),
    view("aten::view"),
    view("aten::reshape"),
    view("aten::permute"),
    view("aten::transpose"),
    view("aten::t"),
    view("aten::unsqueeze"),
    view("aten::squeeze"),
    view("aten::select"),
    view("aten::slice"),
    view("aten::narrow"),
    view("aten::split"),
    view("aten::split_with_sizes"),
    view("aten::chunk"),
    view("aten::unbind"),
    view("aten::expand"),
    view("aten::movedim"),
    view("aten::detach"),
    view("aten::alias"),
    view("aten::contiguous"),
    {"aten::lift", kNone, kIsView, nullptr, &run_lift},
    {"aten::lift_fresh", kNone, kIsView, nullptr, &run_lift},
    {"aten::from_file", kOutput, kUsesFiles},
    dropout_row("aten::alpha_dropout", &run_alpha_dropout),
    dropout_row("aten::alpha_dropout_", &run_alpha_dropout),
    dropout_row("aten::feature_alpha_dropout", &run_alpha_dropout),
    dropout_row("aten::feature_alpha_dropout_", &run_alpha_dropout),
    random_row("aten::rrelu", &run_rrelu),
    random_row("aten::rrelu_", &run_rrelu),
    random_row("aten::bernoulli"),
    random_row("aten::bernoulli_"),
    random_row("aten::cauchy_"),
    random_row("aten::exponential_"),
    random_row("aten::geometric_"),
    random_row("aten::log_normal_"),
    random_row("aten::normal"),
    random_row("aten::normal_"),
    random_row("aten::uniform_"),
    random_row("aten::rand"),
    random_row("aten::rand_like"),
    random_row("aten::randn"),
    random_row("aten::randn_like"),
    random_row("aten::random_"),
    random_row("aten::randint"),
    random_row("aten::randint_like"),
    random_row("aten::randperm", &run_randperm),
    random_row("aten::multinomial", &run_multinomial),
    recurrent_row("aten::lstm"),
    recurrent_row("aten::gru"),
    recurrent_row("aten::rnn_tanh"),
    recurrent_row("aten::rnn_relu"),
};

}  // namespace

const OperatorRow& operator_row(const std::string& target) {
  static const OperatorRow other = {""};
  static const auto rows = [] {
    std::map<std::string, const OperatorRow*> all;
    for (const auto& row : kRows) {
      all[row.name] = &row;
    }
    return all;
  }();
  const auto found = rows.find(target);
  return found == rows.end() ? other : *found->second;
}

const c10::FunctionSchema* schema_of(
    const std::string& target, const std::string& overload) {
  const auto found =
      c10::Dispatcher::singleton().findSchema({target.c_str(), overload.c_str()});
  if (found.has_value()) {
    return &found->schema();
  }
  static std::map<std::string, c10::FunctionSchema> own = [] {
    std::map<std::string, c10::FunctionSchema> schemas;
    for (const auto& row : kRows) {
      if (row.schema != nullptr) {
        schemas.emplace(row.name, torch::jit::parseSchema(row.schema));
      }
    }
    return schemas;
  }();
  const auto row = own.find(target);
  return overload.empty() && row != own.end() ? &row->second : nullptr;
}

const c10::FunctionSchema& schema_of(const Node& node) {
  return *schema_of(node.target, node.overload);
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional == nullptr ? type : optional->getElementType();
}

double multiplications_of(const Graph& graph, const Node& node) {
  const auto count = operator_row(node.target).multiplications;
  return count == nullptr ? 0 : count(graph, node);
}

double cost_of(const Graph& graph, const Node& node) {
  double written = 0;
  if (!operator_row(node.target).has(kIsView)) {
    for (const ValueId id : node.outputs) {
      written += id < 0 ? 0 : elements(graph.value(id).shape);
    }
  }
  return multiplications_of(graph, node) + kCostPerValue * written;
}

}  // namespace tandem
