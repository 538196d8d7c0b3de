#include "tandem/graph/checked_operators.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/graph/operators.h"

namespace tandem {

namespace {

// Operators of ATen whose kernels check their arguments in LibTorch 1.13, or whose
// arguments argument_check() checks. A name also stands for its in-place form.
constexpr const char* kNames =
    "__and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ "
    "__rshift__ __xor__ _adaptive_avg_pool2d _adaptive_avg_pool3d _log_softmax "
    "_shape_as_tensor _softmax _to_copy _unsafe_view _upsample_bicubic2d_aa "
    "_upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d _weight_norm abs absolute acos acosh "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv "
    "addcmul addmm addmv addr adjoint affine_grid_generator alias alias_copy all "
    "alpha_dropout amax amin aminmax angle any arange arccos arccosh arcsin arcsinh "
    "arctan arctan2 arctanh argmax argmin argsort asin asinh atan atan2 atanh "
    "atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d baddbmm "
    "bartlett_window batch_norm bernoulli bilinear binary_cross_entropy "
    "binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not "
    "bitwise_or bitwise_right_shift bitwise_xor blackman_window block_diag bmm "
    "broadcast_tensors broadcast_to bucketize cartesian_prod cat cauchy_ cdist ceil "
    "celu chain_matmul chalf channel_shuffle cholesky cholesky_solve chunk clamp "
    "clamp_max clamp_min clip clone col2im column_stack complex concat concatenate "
    "conj conj_physical constant_pad_nd contiguous conv1d conv2d conv3d conv_tbc "
    "conv_transpose1d conv_transpose2d conv_transpose3d convolution copy copysign "
    "corrcoef cos cosh cosine_embedding_loss cosine_similarity count_nonzero cov "
    "cross cross_entropy_loss cummax cummin cumprod cumsum cumulative_trapezoid "
    "deg2rad det detach detach_copy diag diag_embed diagflat diagonal diagonal_copy "
    "diagonal_scatter diff digamma dist div divide dot dropout dsplit dstack einsum "
    "elu embedding embedding_bag embedding_renorm_ empty empty_like eq erf erfc "
    "erfinv exp exp2 expand expand_as expand_copy expm1 exponential_ eye "
    "fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask "
    "fake_quantize_per_tensor_affine fake_quantize_per_tensor_affine_cachemask "
    "feature_alpha_dropout feature_dropout fft_fft fft_fft2 fft_fftfreq fft_fftn "
    "fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn "
    "fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn "
    "fft_rfft fft_rfft2 fft_rfftfreq fft_rfftn fill fill_diagonal_ fix flatten flip "
    "fliplr flipud float_power floor floor_divide fmax fmin fmod frac "
    "fractional_max_pool2d fractional_max_pool3d frexp frobenius_norm full "
    "full_like gather gcd ge gelu geometric_ ger glu greater greater_equal "
    "grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru gru_cell gt "
    "hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh heaviside "
    "hinge_embedding_loss hsplit hstack huber_loss hypot i0 igamma igammac im2col "
    "imag index index_add index_copy index_fill index_put index_reduce index_select "
    "inner instance_norm inverse isclose isfinite isin isinf isnan isneginf "
    "isposinf isreal istft kaiser_window kl_div kron kthvalue l1_loss layer_norm "
    "lcm ldexp le leaky_relu lerp less less_equal lgamma lift lift_fresh "
    "lift_fresh_copy linalg_cholesky linalg_cross linalg_det linalg_diagonal "
    "linalg_eigh linalg_eigvalsh linalg_householder_product linalg_inv "
    "linalg_matmul linalg_matrix_exp linalg_matrix_norm linalg_matrix_power "
    "linalg_multi_dot linalg_norm linalg_pinv linalg_qr linalg_slogdet linalg_solve "
    "linalg_solve_triangular linalg_svd linalg_svdvals linalg_vecdot "
    "linalg_vector_norm linear linspace log log10 log1p log2 log_normal_ "
    "log_sigmoid log_sigmoid_forward log_softmax logaddexp logaddexp2 logcumsumexp "
    "logdet logical_and logical_not logical_or logical_xor logit logspace logsumexp "
    "lstm lstm_cell lt mH mT margin_ranking_loss masked_fill masked_scatter matmul "
    "matrix_H matrix_exp matrix_power max max_pool1d max_pool1d_with_indices "
    "max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices "
    "max_unpool2d max_unpool3d maximum mean median meshgrid min minimum mish mm "
    "mode moveaxis movedim mse_loss msort mul multi_margin_loss "
    "multilabel_margin_loss multinomial multiply mv mvlgamma nan_to_num nanmean "
    "nanmedian nanquantile nansum narrow narrow_copy native_group_norm "
    "native_layer_norm ne neg negative new_empty new_full new_ones new_zeros "
    "nextafter nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd "
    "norm norm_except_dim normal not_equal nuclear_norm numpy_T one_hot ones "
    "ones_like outer pad pad_sequence pairwise_distance permute permute_copy "
    "pinverse pixel_shuffle pixel_unshuffle poisson_nll_loss polar polygamma "
    "positive pow prelu prod put quantile rad2deg rand rand_like randint "
    "randint_like randn randn_like random_ randperm range ravel real reciprocal "
    "reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder renorm "
    "repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d "
    "reshape reshape_as resolve_conj resolve_neg rms_norm rnn_relu rnn_relu_cell "
    "rnn_tanh rnn_tanh_cell roll rot90 round row_stack rrelu rsqrt rsub "
    "scalar_tensor scaled_dot_product_attention scatter scatter_add scatter_reduce "
    "select select_copy select_scatter selu sgn sigmoid sign signbit silu sin sinc "
    "sinh slice slice_copy slice_scatter slogdet smooth_l1_loss soft_margin_loss "
    "softmax softplus softshrink sort special_digamma special_entr special_erf "
    "special_erfc special_erfcx special_erfinv special_exp2 special_expit "
    "special_expm1 special_gammainc special_gammaincc special_gammaln special_i0 "
    "special_i0e special_i1 special_i1e special_log1p special_log_ndtr "
    "special_log_softmax special_logit special_logsumexp special_multigammaln "
    "special_ndtr special_ndtri special_polygamma special_psi special_round "
    "special_sinc special_softmax special_xlog1py special_xlogy split split_copy "
    "split_with_sizes split_with_sizes_copy sqrt square squeeze squeeze_copy stack "
    "std std_mean stft sub subtract sum sum_to_size swapaxes swapdims t t_copy take "
    "take_along_dim tan tanh tensor_split tensordot threshold tile to topk trace "
    "transpose transpose_copy trapezoid trapz tril tril_indices triplet_margin_loss "
    "triu triu_indices true_divide trunc type_as unbind unbind_copy unflatten "
    "unfold unfold_copy uniform_ unsafe_chunk unsafe_split unsafe_split_with_sizes "
    "unsqueeze unsqueeze_copy upsample_bicubic2d upsample_bilinear2d "
    "upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "upsample_trilinear3d vander var var_mean vdot view view_as view_as_complex "
    "view_as_complex_copy view_as_real view_as_real_copy view_copy vsplit vstack "
    "where xlogy zero zeros zeros_like ";

constexpr int64_t kLargestArgument = std::numeric_limits<int32_t>::max();

bool is_checked(const std::string& target) {
  static const std::set<std::string> names = [] {
    std::istringstream all(kNames);
    std::set<std::string> found;
    for (std::string name; all >> name;) {
      found.insert("aten::" + name);
    }
    return found;
  }();
  const bool in_place = target.back() == '_';
  return names.count(target) > 0 ||
         (in_place && names.count(target.substr(0, target.size() - 1)) > 0);
}

// An in-place view would change the shape of a parameter, buffer or constant. detach_()
// keeps the shape; torch.tensor() in a module becomes such a call.
bool is_view_in_place(const std::string& target) {
  return target == "aten::swapaxes_" || target == "aten::swapdims_" ||
         (target.back() == '_' && target != "aten::detach_" &&
          operator_row(target.substr(0, target.size() - 1)).has(kIsView));
}

// Returns whether an enumerator is that of a plain tensor. Schemas of LibTorch 1.13
// have integers in place of enumerators.
bool is_valid_enumerator(const std::string& name, int64_t value) {
  if (name == "layout") {
    return value == static_cast<int64_t>(at::kStrided);
  }
  if (name == "memory_format") {
    return value >= 0 &&
           value <= static_cast<int64_t>(at::MemoryFormat::ChannelsLast3d);
  }
  return (value >= 0 && value <= static_cast<int64_t>(at::kBool)) ||
         value == static_cast<int64_t>(at::kBFloat16);
}

// Kernels divide by these numbers as int32 or by their squares, so they must not grow
// with the number of samples.
bool is_divisor(const std::string& name) {
  return name == "groups" || name == "num_groups" || name == "upscale_factor" ||
         name == "downscale_factor";
}

// Slices use the largest int64 as "to the end".
bool is_place(const std::string& name) {
  return name == "start" || name == "end" || name == "step";
}

bool is_in_range(const c10::Argument& wanted, int64_t value) {
  const std::string& name = wanted.name();
  if (name == "layout" || name == "memory_format" || ends_with(name, "dtype")) {
    return is_valid_enumerator(name, value);
  }
  return without_optional(wanted.type())->kind() == c10::TypeKind::NumberType ||
         is_place(name) || (value >= -kLargestArgument && value <= kLargestArgument);
}

// Kernels read as many elements as the schema states. Exceptions are a default of [],
// and a schema for one element, which also accepts more.
bool has_right_length(const c10::Argument& wanted, size_t length) {
  const auto count = static_cast<size_t>(std::max(wanted.N().value_or(1), 1));
  const auto& standard = wanted.default_value();
  const bool may_be_empty =
      standard && standard->isIntList() && standard->toIntVector().empty();
  return count == 1 || length == count || (length == 0 && may_be_empty);
}

bool is_safe_element(const Argument& argument, const c10::Argument& wanted) {
  if (argument.kind == Argument::Kind::size) {
    return !is_divisor(wanted.name());
  }
  if (argument.kind != Argument::Kind::constant) {
    return true;
  }
  const auto& value = argument.constant;
  if (value.isInt()) {
    return is_in_range(wanted, value.toInt());
  }
  if (!value.isIntList()) {
    return true;
  }
  const auto numbers = value.toIntVector();
  return has_right_length(wanted, numbers.size()) &&
         std::all_of(numbers.begin(), numbers.end(), [&](int64_t number) {
           return is_in_range(wanted, number);
         });
}

bool is_safe(const Argument& argument, const c10::Argument& wanted) {
  if (argument.kind == Argument::Kind::list) {
    return has_right_length(wanted, argument.list.size()) &&
           std::all_of(
               argument.list.begin(), argument.list.end(),
               [&](const Argument& element) {
                 return is_safe_element(element, wanted);
               });
  }
  return is_safe_element(argument, wanted);
}

bool is_tensors(const c10::TypePtr& type) {
  const auto list = type->cast<c10::ListType>();
  return (list == nullptr ? type : list->getElementType())->kind() ==
         c10::TypeKind::TensorType;
}

// --- checks of values

at::Tensor tensor_named(
    const char* name, const c10::FunctionSchema& schema,
    const std::vector<c10::IValue>& arguments) {
  const auto index = schema.argumentIndexWithName(name);
  const auto i = index ? static_cast<size_t>(*index) : arguments.size();
  return i < arguments.size() && arguments[i].isTensor() ? arguments[i].toTensor()
                                                         : at::Tensor();
}

// The backward of grid_sampler reads outside of its input for NaN.
void check_grid(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const at::Tensor grid = tensor_named("grid", schema, arguments);
  TORCH_CHECK(
      grid.isfinite().all().item<bool>(), "the grid has a number that is not finite");
}

// The sizes of the windows follow from these samples.
void check_samples_of_pool(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const at::Tensor input = tensor_named("self", schema, arguments);
  const at::Tensor samples = tensor_named("random_samples", schema, arguments);
  const int64_t dims = ends_with(schema.name(), "3d") ? 3 : 2;
  const bool batch = input.dim() == dims + 2;
  TORCH_CHECK(
      (batch || input.dim() == dims + 1) && samples.dim() == 3 &&
          samples.size(0) == (batch ? input.size(0) : 1) &&
          samples.size(1) == input.size(batch ? 1 : 0) && samples.size(2) == dims,
      "random_samples have the shape ", samples.sizes());
  TORCH_CHECK(
      samples.ge(0).logical_and(samples.le(1)).all().item<bool>(),
      "random_samples are not in [0, 1]");
}

// The kernels check indices, but not the places where bags begin.
void check_bags(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const at::Tensor weight = tensor_named("weight", schema, arguments);
  const at::Tensor indices = tensor_named("indices", schema, arguments);
  const at::Tensor offsets = tensor_named("offsets", schema, arguments);
  TORCH_CHECK(
      weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1 &&
          at::isIntegralType(offsets.scalar_type(), false),
      "weight, indices and offsets have ", weight.dim(), ", ", indices.dim(), " and ",
      offsets.dim(), " dimensions");
  TORCH_CHECK(
      offsets.numel() > 0 && offsets[0].item<int64_t>() == 0 &&
          offsets[-1].item<int64_t>() <= indices.numel() &&
          offsets.diff().ge(0).all().item<bool>(),
      "offsets do not begin at 0, decrease, or exceed the number of indices");
}

// The kernel divides by the number of elements, and reads a length for each row.
void check_weight_norm(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const at::Tensor v = tensor_named("v", schema, arguments);
  const at::Tensor g = tensor_named("g", schema, arguments);
  const int64_t dim = arguments[2].toInt();
  TORCH_CHECK(v.numel() > 0, "v has no elements");
  TORCH_CHECK(
      g.numel() == (dim < 0 ? 1 : v.size(dim)), "g has ", g.numel(), " elements");
}

// A scale that does not belong to the sizes leads to places outside of the input.
void check_scales(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const auto sizes = schema.argumentIndexWithName("output_size");
  if (schema.overload_name() != "" || !sizes) {
    return;
  }
  const auto output = arguments[static_cast<size_t>(*sizes)].toIntVector();
  const at::Tensor input = tensor_named("self", schema, arguments);
  const auto first = arguments.size() - output.size();
  TORCH_CHECK(
      input.dim() == static_cast<int64_t>(output.size()) + 2, "the input has ",
      input.dim(), " dimensions");
  for (size_t i = 0; i < output.size(); ++i) {
    const auto& scale = arguments[first + i];
    const auto size = static_cast<double>(input.size(static_cast<int64_t>(i) + 2));
    TORCH_CHECK(
        scale.isNone() ||
            std::abs(size * scale.toDouble() - static_cast<double>(output[i])) <= 1,
        "a scale differs from the sizes");
  }
}

// The kernel makes a list of as many tensors as a number of a tensor says.
void check_parts(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  constexpr int64_t kMostParts = 1 << 20;
  const at::Tensor parts =
      tensor_named("tensor_indices_or_sections", schema, arguments);
  const bool is_number = parts.defined() && parts.dim() == 0;
  const int64_t count = is_number ? parts.item().toLong()
                                  : (arguments[1].isInt() ? arguments[1].toInt() : 0);
  TORCH_CHECK(
      count <= kMostParts, "the number of parts is ", count, ", expected at most ",
      kMostParts);
}

// The quotient of the smallest integer and -1 stops the program. An output of another
// shape would get other memory, as a part of an arena must not.
void check_quotient(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const at::Tensor self = tensor_named("self", schema, arguments);
  const at::Tensor other = tensor_named("other", schema, arguments);
  const at::Tensor out = tensor_named("out", schema, arguments);
  TORCH_CHECK(
      !out.defined() || out.sizes() == at::infer_size(self.sizes(), other.sizes()),
      "out has another shape than the quotient");
  const auto is_integral = [](const at::Tensor& x) {
    return !x.defined() || at::isIntegralType(x.scalar_type(), true);
  };
  if (!is_integral(self) || !is_integral(other)) {
    return;
  }
  const auto is = [&](const at::Tensor& x, size_t i, int64_t wanted) {
    return x.defined() ? x.to(at::kLong).eq(wanted).any().item<bool>()
                       : arguments[i].isInt() && arguments[i].toInt() == wanted;
  };
  const bool smallest = is(self, 0, std::numeric_limits<int64_t>::min()) ||
                        is(self, 0, std::numeric_limits<int32_t>::min());
  TORCH_CHECK(!smallest || !is(other, 1, -1), "the smallest integer is divided by -1");
}

}  // namespace

std::optional<std::string> find_unsafe(
    const Node& node, const c10::FunctionSchema& schema) {
  const auto& wanted = schema.arguments();
  const bool is_out = std::any_of(
      wanted.begin(), wanted.end(), [](const auto& one) { return one.is_out(); });
  const auto& returns = schema.returns();
  // TorchScript's operators on numbers and lists divide without a check.
  const bool has_tensors =
      !returns.empty() && std::all_of(
                              returns.begin(), returns.end(),
                              [](const auto& one) { return is_tensors(one.type()); });
  // Packed sequences have sizes in a tensor.
  const bool is_packed = node.overload == "data";
  if (!is_checked(node.target) || is_view_in_place(node.target) ||
      (is_out && node.target != "aten::div") || is_packed || !has_tensors) {
    return "calls " + operator_name(node) +
           ", whose arguments LibTorch does not check, so a file could change memory; "
           "use another operator in the model";
  }
  // PyTorch names every output, except outputs of operators with several.
  const bool is_one =
      returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::TensorType;
  if (node.outputs.empty() ||
      (node.outputs[0] < 0 && is_one && written_value(node) < 0)) {
    return "has no output; export the network again";
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!is_safe(node.arguments[i], wanted[i])) {
      return fmt::format(
          "has a wrong size or number in the argument '{}' of {}, which LibTorch does "
          "not check; correct it in the model",
          wanted[i].name(), operator_name(node));
    }
  }
  return std::nullopt;
}

void check_operators(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (const auto problem = find_unsafe(node, schema_of(node))) {
      throw ConfigError("[model] " + name_for_messages(node) + " " + *problem);
    }
  }
}

ArgumentCheck argument_check(const std::string& target) {
  static const std::set<std::string> kQuotients = {
      "aten::div",        "aten::divide", "aten::floor_divide", "aten::remainder",
      "aten::fmod",       "aten::div_",   "aten::divide_",      "aten::floor_divide_",
      "aten::remainder_", "aten::fmod_"};
  if (target.rfind("aten::grid_sampler", 0) == 0) {
    return &check_grid;
  }
  if (target == "aten::embedding_bag") {
    return &check_bags;
  }
  if (target == "aten::tensor_split") {
    return &check_parts;
  }
  if (target == "aten::_weight_norm") {
    return &check_weight_norm;
  }
  if (target.rfind("aten::fractional_max_pool", 0) == 0) {
    return &check_samples_of_pool;
  }
  if (target.rfind("aten::upsample_", 0) == 0 ||
      target.rfind("aten::_upsample_", 0) == 0) {
    return &check_scales;
  }
  return kQuotients.count(target) > 0 ? &check_quotient : nullptr;
}

}  // namespace tandem
