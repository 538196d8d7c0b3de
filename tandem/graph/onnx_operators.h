#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/graph/onnx_builder.h"

namespace tandem {

struct OnnxRow;

/// A call of an operator, and the builder to which its ONNX nodes are added.
struct OnnxCall {
  const Graph& graph;
  const Node& node;
  const OnnxRow& row;
  OnnxBuilder& to;

  /// Adds an ONNX node and returns the name of its output.
  std::string add(
      const std::string& type, OnnxNames inputs,
      std::vector<OnnxAttribute> attributes = {}) const {
    return to.add(type, std::move(inputs), std::move(attributes));
  }

  /// Returns whether an argument exists in the operator's schema and is not None.
  bool has(size_t argument) const;
  /// Returns the index of an argument in the operator's schema, if the call has the
  /// argument and the argument is not None.
  std::optional<size_t> find(const char* argument) const;
  /// Returns a number or a flag by the name of its argument; `other` if it is missing.
  double number_or(const char* argument, double other) const;
  bool flag_or(const char* argument, bool other) const;
  /// Returns the ONNX name of a tensor; "" for None.
  std::string tensor(size_t argument) const;
  /// Returns the ONNX names of a list of tensors.
  OnnxNames tensors(size_t argument) const;
  /// Returns the ONNX name of a tensor or number, in the dtype of the output or in
  /// `dtype`.
  std::string operand(size_t argument) const;
  std::string operand(size_t argument, at::ScalarType dtype) const;
  /// Returns the ONNX name of a value of dtype `from`, converted to another dtype.
  std::string cast(
      const std::string& value, at::ScalarType from, at::ScalarType dtype) const;
  /// Returns the ONNX name of a constant in the dtype of the output.
  std::string constant(double value) const;
  /// Returns the dtype in which PyTorch computes with two arguments.
  at::ScalarType common_dtype(size_t first, size_t second) const;
  /// Functions that return an argument. They throw OnnxObstacle if the argument depends
  /// on the number of samples.
  int64_t integer(size_t argument) const;
  std::vector<int64_t> integers(size_t argument) const;
  double number(size_t argument) const;
  bool flag(size_t argument) const;
  std::string text(size_t argument) const;
  /// Returns a list of sizes.
  std::vector<Size> sizes(size_t argument) const;

  const Value& value(size_t argument) const;
  const std::vector<Size>& shape(size_t argument) const;
  int64_t rank(size_t argument) const;
  /// Returns the first output that the graph uses.
  const Value& output() const;
  /// Returns whether the graph uses an output.
  bool uses(size_t output) const;
  /// Returns a dimension of the first argument as a number from 0 on. Negative
  /// dimensions count from the last dimension.
  int64_t dimension(int64_t dimension) const;
  /// Returns a size of an argument. Throws OnnxObstacle if the size depends on the
  /// number of samples.
  int64_t fixed_size(size_t argument, int64_t dimension) const;
  /// Reshapes a value of each channel so that it is broadcast over the first argument.
  std::string over_channels(const std::string& value) const;
  /// Returns a slice of a value along a dimension.
  std::string slice(
      const std::string& value, int64_t dimension, int64_t begin, int64_t end,
      int64_t step = 1) const;
};

/// The counterpart of an operator of ATen in ONNX.
struct OnnxRow {
  // Name without overload and without the "_" of operators in place.
  const char* name;
  // Adds the nodes and returns their results, one for each output of the call.
  OnnxNames (*add)(const OnnxCall& call);
  // If several rows have the same function `add`: the type of the ONNX operator, or
  // another text that `add` reads.
  const char* type = "";
};

/// Returns the counterpart of an operator, such as "aten::relu" or "aten::relu_"; null
/// if there is none.
const OnnxRow* onnx_row(const std::string& target);

// --- onnx_activations.cpp: functions of single values

OnnxNames onnx_same(const OnnxCall& call);
OnnxNames onnx_unary(const OnnxCall& call);
OnnxNames onnx_cast_to_output(const OnnxCall& call);
OnnxNames onnx_rsqrt(const OnnxCall& call);
OnnxNames onnx_square(const OnnxCall& call);
OnnxNames onnx_exponential(const OnnxCall& call);
OnnxNames onnx_logarithm(const OnnxCall& call);
OnnxNames onnx_truncated(const OnnxCall& call);
OnnxNames onnx_fraction(const OnnxCall& call);
OnnxNames onnx_silu(const OnnxCall& call);
OnnxNames onnx_mish(const OnnxCall& call);
OnnxNames onnx_log_sigmoid(const OnnxCall& call);
OnnxNames onnx_softplus(const OnnxCall& call);
OnnxNames onnx_gelu(const OnnxCall& call);
OnnxNames onnx_hardsigmoid(const OnnxCall& call);
OnnxNames onnx_clip(const OnnxCall& call);
OnnxNames onnx_clip_bound(const OnnxCall& call);
OnnxNames onnx_relu6(const OnnxCall& call);
OnnxNames onnx_with_alpha(const OnnxCall& call);
OnnxNames onnx_elu(const OnnxCall& call);
OnnxNames onnx_rrelu(const OnnxCall& call);
OnnxNames onnx_shrink(const OnnxCall& call);
OnnxNames onnx_threshold(const OnnxCall& call);
OnnxNames onnx_glu(const OnnxCall& call);
OnnxNames onnx_prelu(const OnnxCall& call);
OnnxNames onnx_logical_not(const OnnxCall& call);

// --- onnx_arithmetic.cpp: functions of several values, and constants

OnnxNames onnx_binary(const OnnxCall& call);
OnnxNames onnx_sum_of(const OnnxCall& call);
OnnxNames onnx_reversed_difference(const OnnxCall& call);
OnnxNames onnx_quotient(const OnnxCall& call);
OnnxNames onnx_floor_quotient(const OnnxCall& call);
OnnxNames onnx_remainder(const OnnxCall& call);
OnnxNames onnx_compare(const OnnxCall& call);
OnnxNames onnx_logical(const OnnxCall& call);
OnnxNames onnx_bitwise(const OnnxCall& call);
OnnxNames onnx_where(const OnnxCall& call);
OnnxNames onnx_masked_fill(const OnnxCall& call);
OnnxNames onnx_lerp(const OnnxCall& call);
OnnxNames onnx_addc(const OnnxCall& call);
OnnxNames onnx_filled(const OnnxCall& call);
OnnxNames onnx_arange(const OnnxCall& call);
OnnxNames onnx_log_add_exp(const OnnxCall& call);

// --- onnx_reductions.cpp: operators along dimensions

OnnxNames onnx_softmax(const OnnxCall& call);
OnnxNames onnx_reduce(const OnnxCall& call);
OnnxNames onnx_variance(const OnnxCall& call);
OnnxNames onnx_norm(const OnnxCall& call);
OnnxNames onnx_extreme(const OnnxCall& call);
OnnxNames onnx_arg_extreme(const OnnxCall& call);
OnnxNames onnx_all_or_any(const OnnxCall& call);
OnnxNames onnx_sort(const OnnxCall& call);
OnnxNames onnx_top_k(const OnnxCall& call);
OnnxNames onnx_cumulative_sum(const OnnxCall& call);
OnnxNames onnx_cosine_similarity(const OnnxCall& call);
OnnxNames onnx_pairwise_distance(const OnnxCall& call);
OnnxNames onnx_distances(const OnnxCall& call);
OnnxNames onnx_weight_norm(const OnnxCall& call);

// --- onnx_layers.cpp: convolutions and pooling

OnnxNames onnx_convolution(const OnnxCall& call);
OnnxNames onnx_transposed_convolution(const OnnxCall& call);
OnnxNames onnx_max_pool(const OnnxCall& call);
OnnxNames onnx_average_pool(const OnnxCall& call);
OnnxNames onnx_adaptive_pool(const OnnxCall& call);
OnnxNames onnx_max_unpool(const OnnxCall& call);
OnnxNames onnx_fold(const OnnxCall& call);
OnnxNames onnx_unfold(const OnnxCall& call);

// --- onnx_norms.cpp: normalization

OnnxNames onnx_batch_norm(const OnnxCall& call);
OnnxNames onnx_layer_norm(const OnnxCall& call);
OnnxNames onnx_group_norm(const OnnxCall& call);
OnnxNames onnx_instance_norm(const OnnxCall& call);
OnnxNames onnx_rms_norm(const OnnxCall& call);

// --- onnx_products.cpp: products of matrices, and attention

OnnxNames onnx_linear(const OnnxCall& call);
OnnxNames onnx_addmm(const OnnxCall& call);
OnnxNames onnx_einsum(const OnnxCall& call);
OnnxNames onnx_bilinear(const OnnxCall& call);
OnnxNames onnx_attention(const OnnxCall& call);

// --- onnx_recurrent.cpp: recurrent layers

OnnxNames onnx_recurrent(const OnnxCall& call);
OnnxNames onnx_recurrent_cell(const OnnxCall& call);

// --- onnx_resize.cpp: images of other sizes

OnnxNames onnx_resize(const OnnxCall& call);
OnnxNames onnx_grid_sample(const OnnxCall& call);
OnnxNames onnx_affine_grid(const OnnxCall& call);
OnnxNames onnx_pixel_shuffle(const OnnxCall& call);
OnnxNames onnx_channel_shuffle(const OnnxCall& call);

// --- onnx_indexing.cpp: elements at computed places

OnnxNames onnx_embedding(const OnnxCall& call);
OnnxNames onnx_gather(const OnnxCall& call);
OnnxNames onnx_index_select(const OnnxCall& call);
OnnxNames onnx_index(const OnnxCall& call);
OnnxNames onnx_one_hot(const OnnxCall& call);
OnnxNames onnx_scatter(const OnnxCall& call);

// --- onnx_views.cpp: operators that move values

OnnxNames onnx_reshape(const OnnxCall& call);
OnnxNames onnx_permute(const OnnxCall& call);
OnnxNames onnx_transpose(const OnnxCall& call);
OnnxNames onnx_movedim(const OnnxCall& call);
OnnxNames onnx_expand(const OnnxCall& call);
OnnxNames onnx_broadcast(const OnnxCall& call);
OnnxNames onnx_cat(const OnnxCall& call);
OnnxNames onnx_stack(const OnnxCall& call);
OnnxNames onnx_select(const OnnxCall& call);
OnnxNames onnx_slice(const OnnxCall& call);
OnnxNames onnx_narrow(const OnnxCall& call);
OnnxNames onnx_chunk(const OnnxCall& call);
OnnxNames onnx_split(const OnnxCall& call);
OnnxNames onnx_unbind(const OnnxCall& call);
OnnxNames onnx_pad(const OnnxCall& call);
OnnxNames onnx_flip(const OnnxCall& call);
OnnxNames onnx_roll(const OnnxCall& call);
OnnxNames onnx_repeat(const OnnxCall& call);
OnnxNames onnx_repeat_interleave(const OnnxCall& call);
OnnxNames onnx_triangle(const OnnxCall& call);
OnnxNames onnx_windows(const OnnxCall& call);

}  // namespace tandem
