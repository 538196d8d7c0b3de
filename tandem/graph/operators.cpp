#include "tandem/graph/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <cmath>
#include <limits>
#include <map>

#include "tandem/base/error.h"
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

// Returns the dimension of a value that grows with the number of samples; 0 if it is
// unknown.
int64_t sample_dimension(const OperatorCall& call, size_t argument) {
  const auto& shape = shape_of(call.graph, call.node, argument);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].per_sample != 0) {
      return static_cast<int64_t>(i);
    }
  }
  return 0;
}

// Returns a mask for `shape`, whose dimension `dimension` grows with the samples.
at::Tensor mask_for(
    const OperatorCall& call, std::vector<int64_t> shape, int64_t dimension, double p,
    const at::TensorOptions& options) {
  const auto dtype =
      options.dtype() == at::kDouble ? at::ScalarType::Double : at::ScalarType::Float;
  // A dimension such as N * heads has several rows per sample.
  const int64_t rows = shape[static_cast<size_t>(dimension)];
  shape.erase(shape.begin() + dimension);
  shape.insert(shape.begin(), rows);
  const int64_t samples =
      call.samples > 0 && rows % call.samples == 0 ? call.samples : rows;
  const int64_t count = c10::multiply_integers(shape);
  return dropout_mask(
             call.context.samples, call.node.number, samples,
             samples == 0 ? 0 : count / samples, p, options.dtype(dtype))
      .to(c10::typeMetaToScalarType(options.dtype()))
      .view(shape)
      .movedim(0, dimension);
}

// [feature_]dropout[_](input, p, train). feature_dropout drops whole channels, and a
// name that ends with "_" overwrites the input.
at::Tensor run_dropout(const OperatorCall& call) {
  at::Tensor x = call.arguments[0].toTensor();
  const double p = call.arguments[1].toDouble();
  if (!call.context.training || p == 0) {
    return x;
  }
  const std::string& name = call.node.target;
  auto shape = x.sizes().vec();
  if (name.find("feature") != std::string::npos && shape.size() > 2) {
    std::fill(shape.begin() + 2, shape.end(), 1);
  }
  const auto mask = mask_for(call, shape, sample_dimension(call, 0), p, x.options());
  return name.back() == '_' ? x.mul_(mask) : x.mul(mask);
}

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
  // Without running statistics, evaluation also uses the batch.
  const bool training = call.context.training || !mean.defined();
  if (call.context.training && call.stack_statistics && mean.defined()) {
    return sync_batch_norm(
        x, weight, bias, mean, variance, momentum, epsilon, call.stack_statistics,
        name_for_messages(call.node));
  }
  if (call.context.training && x.numel() > 0) {
    check_values_per_channel(x.numel() / x.size(1), name_for_messages(call.node));
  }
  return at::batch_norm(
      x, weight, bias, mean, variance, training, momentum, epsilon, false);
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

// Arguments of attention, as far as this LibTorch's schema has them.
struct Attention {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor mask;
  double dropout = 0;
  bool causal = false;
  double scale = 0;
  bool grouped = false;
};

Attention attention_of(const std::vector<c10::IValue>& arguments) {
  Attention attention;
  attention.query = arguments[0].toTensor();
  attention.key = arguments[1].toTensor();
  attention.value = arguments[2].toTensor();
  attention.mask = optional_tensor(arguments[3]);
  attention.dropout = arguments[4].toDouble();
  attention.causal = arguments[5].toBool();
  attention.scale = arguments.size() > 6 && !arguments[6].isNone()
                        ? arguments[6].toDouble()
                        : 1 / std::sqrt(static_cast<double>(attention.query.size(-1)));
  attention.grouped = arguments.size() > 7 && arguments[7].toBool();
  return attention;
}

// Source: torch.nn.functional.scaled_dot_product_attention's documentation.
at::Tensor attention_weights(const Attention& attention) {
  auto key = attention.key;
  if (attention.grouped) {
    key = key.repeat_interleave(attention.query.size(-3) / key.size(-3), -3);
  }
  auto scores = at::matmul(attention.query.mul(attention.scale), key.transpose(-2, -1));
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  if (attention.causal) {
    const auto allowed =
        at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool))
            .tril();
    scores = scores.masked_fill(allowed.logical_not(), kMinusInfinity);
  }
  if (attention.mask.defined()) {
    scores = attention.mask.scalar_type() == at::kBool
                 ? scores.masked_fill(attention.mask.logical_not(), kMinusInfinity)
                 : scores.add(attention.mask);
  }
  return at::softmax(scores, -1);
}

at::Tensor run_attention(const OperatorCall& call) {
  Attention attention = attention_of(call.arguments);
  const bool drops = attention.dropout > 0 && call.context.training;
  static const auto own = c10::Dispatcher::singleton().findSchema(
      {"aten::scaled_dot_product_attention", ""});
  if (own.has_value() && !drops) {
    auto stack = call.arguments;
    stack[4] = 0.0;
    own->callBoxed(&stack);
    return stack[0].toTensor();
  }
  auto weights = attention_weights(attention);
  if (drops) {
    weights = weights.mul(mask_for(
        call, weights.sizes().vec(), sample_dimension(call, 0), attention.dropout,
        weights.options()));
  }
  auto value = attention.value;
  if (attention.grouped) {
    value = value.repeat_interleave(attention.query.size(-3) / value.size(-3), -3);
  }
  return at::matmul(weights, value);
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

constexpr OperatorRow dropout_row(const char* name) {
  return {name, kOutput, kIsDropout, nullptr, &run_dropout};
}

constexpr OperatorRow random_values(const char* name) {
  return {name, kOutput, kIsRandom};
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
    {"aten::from_file", kOutput, kUsesFiles},
    random_values("aten::alpha_dropout"),
    random_values("aten::alpha_dropout_"),
    random_values("aten::feature_alpha_dropout"),
    random_values("aten::feature_alpha_dropout_"),
    random_values("aten::bernoulli"),
    random_values("aten::bernoulli_"),
    random_values("aten::rrelu"),
    random_values("aten::rrelu_"),
    random_values("aten::rand"),
    random_values("aten::rand_like"),
    random_values("aten::randn"),
    random_values("aten::randn_like"),
    random_values("aten::randint"),
    random_values("aten::randperm"),
    random_values("aten::normal"),
    random_values("aten::multinomial"),
    random_values("aten::gumbel_softmax"),
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
