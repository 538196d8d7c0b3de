#include "tandem/graph/attention.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <limits>
#include <tuple>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/parallel.h"
#include "tandem/kernels/attention_loops.h"
#include "tandem/kernels/isa.h"

namespace tandem {

namespace {

namespace autograd = torch::autograd;

// Repeats keys or values, so that each head of the query has its own.
at::Tensor for_heads_of(const at::Tensor& query, const at::Tensor& x) {
  TORCH_CHECK(x.size(-3) > 0, "keys or values have no heads");
  return x.repeat_interleave(query.size(-3) / x.size(-3), -3);
}

// Returns a tensor batch x heads x positions x depth in memory ordered batch,
// positions, heads, depth, so that the network's next view(batch, positions, heads *
// depth) needs no copy.
at::Tensor by_positions(const at::Tensor& like, bool is_zero) {
  const std::vector<int64_t> sizes = {
      like.size(0), like.size(2), like.size(1), like.size(3)};
  return (is_zero ? at::zeros(sizes, like.options()) : at::empty(sizes, like.options()))
      .transpose(1, 2);
}

at::Tensor with_adjacent_depth(const at::Tensor& x) {
  return x.stride(3) == 1 ? x : x.contiguous();
}

HeadRows rows_of(const at::Tensor& x, int64_t batch, int64_t head) {
  return {x.data_ptr<float>() + batch * x.stride(0) + head * x.stride(1), x.stride(2)};
}

// The heads of a call. A group of heads of the query shares one head of the key.
class Heads {
 public:
  Heads(
      const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
      const c10::optional<at::Tensor>& mask, bool is_causal, double scale)
      : query_(with_adjacent_depth(query)),
        key_(with_adjacent_depth(key)),
        value_(with_adjacent_depth(value)),
        mask_(mask.value_or(at::Tensor())),
        is_causal_(is_causal),
        scale_(static_cast<float>(scale)) {}

  // Calls body(batch, head, key head, scratch) for all heads, those of a group in order
  // on one thread.
  template <typename Body>
  void for_each(bool backward, const Body& body) const {
    const int64_t groups = key_.size(1);
    const int64_t group = query_.size(1) / groups;
    const int64_t size = attention_scratch(key_.size(2), key_.size(3), backward);
    parallel_for(0, query_.size(0) * groups, 1, [&](int64_t first, int64_t last) {
      const auto scratch = at::empty({size}, at::kFloat);
      for (int64_t i = first; i < last; ++i) {
        for (int64_t in_group = 0; in_group < group; ++in_group) {
          body(
              i / groups, i % groups * group + in_group, i % groups,
              scratch.data_ptr<float>());
        }
      }
    });
  }

  AttentionHead at(int64_t batch, int64_t head, int64_t key_head) const {
    AttentionHead result;
    result.query = rows_of(query_, batch, head);
    result.key = rows_of(key_, batch, key_head);
    result.value = rows_of(value_, batch, key_head);
    result.queries = query_.size(2);
    result.keys = key_.size(2);
    result.depth = query_.size(3);
    result.scale = scale_;
    result.is_causal = is_causal_;
    if (mask_.defined()) {
      result.mask =
          mask_.data_ptr<float>() + batch * mask_.stride(0) + head * mask_.stride(1);
      result.mask_row = mask_.stride(2);
      result.mask_column = mask_.stride(3);
    }
    return result;
  }

 private:
  at::Tensor query_;
  at::Tensor key_;
  at::Tensor value_;
  // batch x heads x queries x keys; undefined without a mask.
  at::Tensor mask_;
  bool is_causal_;
  float scale_;
};

float* statistics_of(const at::Tensor& statistics, int64_t batch, int64_t head) {
  return statistics.data_ptr<float>() + batch * statistics.stride(0) +
         head * statistics.stride(1);
}

std::tuple<at::Tensor, at::Tensor> forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const c10::optional<at::Tensor>& mask, bool is_causal, double scale) {
  using Loop = void (*)(const AttentionHead&, const HeadRows&, float*, float*);
  static const Loop loop = TANDEM_FOR_ISA(Loop, attention_forward);
  const auto output = by_positions(query, false);
  const auto statistics =
      at::empty({query.size(0), query.size(1), query.size(2), 2}, query.options());
  const Heads heads(query, key, value, mask, is_causal, scale);
  heads.for_each(
      false, [&](int64_t batch, int64_t head, int64_t key_head, float* scratch) {
        loop(
            heads.at(batch, head, key_head), rows_of(output, batch, head),
            statistics_of(statistics, batch, head), scratch);
      });
  return {output, statistics};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const c10::optional<at::Tensor>& mask,
    const at::Tensor& output, const at::Tensor& statistics, bool is_causal,
    double scale) {
  using Loop = void (*)(
      const AttentionHead&, const HeadRows&, const float*, const HeadRows&,
      const HeadRows&, const HeadRows&, const HeadRows&, float*);
  static const Loop loop = TANDEM_FOR_ISA(Loop, attention_backward);
  const auto grad_output = with_adjacent_depth(gradient);
  const auto grad_query = by_positions(query, false);
  const auto grad_key = by_positions(key, true);
  const auto grad_value = by_positions(value, true);
  const Heads heads(query, key, value, mask, is_causal, scale);
  heads.for_each(
      true, [&](int64_t batch, int64_t head, int64_t key_head, float* scratch) {
        loop(
            heads.at(batch, head, key_head), rows_of(output, batch, head),
            statistics_of(statistics, batch, head), rows_of(grad_output, batch, head),
            rows_of(grad_query, batch, head), rows_of(grad_key, batch, key_head),
            rows_of(grad_value, batch, key_head), scratch);
      });
  return {grad_query, grad_key, grad_value};
}

}  // namespace

// Operators of LibTorch, so that recordings contain them.
TORCH_LIBRARY(tandem, m) {
  m.def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, "
      "float scale) -> (Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, "
      "Tensor? mask, Tensor output, Tensor statistics, bool is_causal, float scale) -> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(tandem, CPU, m) {
  m.impl("attention", &forward);
  m.impl("attention_backward", &backward);
}

namespace {

template <typename Function>
c10::TypedOperatorHandle<Function> operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

struct AttentionFunction : autograd::Function<AttentionFunction> {
  static at::Tensor forward(
      autograd::AutogradContext* context, const at::Tensor& query,
      const at::Tensor& key, const at::Tensor& value,
      const c10::optional<at::Tensor>& mask, bool is_causal, double scale) {
    static const auto op = operator_of<decltype(tandem::forward)>("tandem::attention");
    const auto [output, statistics] =
        op.call(query, key, value, mask, is_causal, scale);
    context->save_for_backward(
        {query, key, value, mask.value_or(at::Tensor()), output, statistics});
    context->saved_data["is_causal"] = is_causal;
    context->saved_data["scale"] = scale;
    return output;
  }

  static autograd::variable_list backward(
      autograd::AutogradContext* context, const autograd::variable_list& outputs) {
    static const auto op =
        operator_of<decltype(tandem::backward)>("tandem::attention_backward");
    const auto saved = context->get_saved_variables();
    const auto mask = saved[3].defined() ? c10::make_optional(saved[3]) : c10::nullopt;
    const auto [query, key, value] = op.call(
        outputs[0], saved[0], saved[1], saved[2], mask, saved[4], saved[5],
        context->saved_data["is_causal"].toBool(),
        context->saved_data["scale"].toDouble());
    return {query, key, value, {}, {}, {}};
  }
};

// Returns numbers that are added to scores; nullopt without a mask.
c10::optional<at::Tensor> added_mask(const Attention& attention) {
  if (!attention.mask.defined()) {
    return c10::nullopt;
  }
  auto mask = attention.mask;
  if (mask.scalar_type() == at::kBool) {
    mask =
        at::zeros(mask.sizes(), attention.query.options())
            .masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  }
  const auto& query = attention.query;
  return mask.expand(
      {query.size(0), query.size(1), query.size(2), attention.key.size(2)});
}

}  // namespace

at::Tensor attention_weights(const Attention& attention) {
  auto key = attention.key;
  if (attention.grouped) {
    key = for_heads_of(attention.query, key);
  }
  auto scores = at::matmul(attention.query.mul(attention.scale), key.transpose(-2, -1));
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  if (attention.is_causal) {
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

at::Tensor weighted_values(const Attention& attention, const at::Tensor& weights) {
  return at::matmul(
      weights, attention.grouped ? for_heads_of(attention.query, attention.value)
                                 : attention.value);
}

bool fits_attention_kernels(const Attention& attention) {
  const auto& query = attention.query;
  const auto& key = attention.key;
  const auto& mask = attention.mask;
  for (const auto& x : {query, key, attention.value}) {
    if (!x.is_cpu() || x.scalar_type() != at::kFloat || x.dim() != 4 ||
        x.numel() == 0 || x.size(0) != query.size(0) || x.size(3) != query.size(3)) {
      return false;
    }
  }
  const bool heads_fit = attention.grouped ? query.size(1) % key.size(1) == 0
                                           : query.size(1) == key.size(1);
  return heads_fit && key.sizes() == attention.value.sizes() &&
         query.size(3) % kAttentionDepth == 0 &&
         (!mask.defined() ||
          (!mask.requires_grad() && mask.dim() <= 4 &&
           (mask.scalar_type() == at::kBool || mask.scalar_type() == at::kFloat)));
}

at::Tensor attention_by_kernels(const Attention& attention) {
  return AttentionFunction::apply(
      attention.query, attention.key, attention.value, added_mask(attention),
      attention.is_causal, attention.scale);
}

}  // namespace tandem
