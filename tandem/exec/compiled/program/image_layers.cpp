#include "tandem/exec/compiled/program/image_layers.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tandem/kernels/pool_loops.h"

namespace tandem {

namespace {

using Found = std::optional<ImageLayer>;

class Finder {
 public:
  explicit Finder(const RecordedStep& step)
      : step_(step), recording_(step.recording), readers_(step.recording) {}

  Found layer_at(size_t call) const {
    const RecordedCall& forward = recording_.calls[call];
    Found found = forward.calls("aten::convolution")               ? convolution(call)
                  : forward.calls("aten::native_batch_norm")       ? batch_norm(call)
                  : forward.calls("aten::max_pool2d_with_indices") ? max_pool(call)
                  : forward.calls("aten::avg_pool2d")              ? average_pool(call)
                                                                   : std::nullopt;
    if (found) {
      found->forward = call;
      found->input = forward.arguments[0].tensor;
      found->output = forward.results[0];
      found->fused.first = !wants_input_gradient(*found);
      fuse_relu(*found);
    }
    return found;
  }

 private:
  const RecordedCall& call_at(int64_t index) const {
    return recording_.calls[static_cast<size_t>(index)];
  }

  // Returns whether backward makes the call again before the call `backward`, which
  // then belongs to the repetition.
  bool runs_again(size_t call, size_t backward) const {
    const RecordedCall& first = recording_.calls[call];
    for (const size_t other : readers_.of(first.arguments[0].tensor)) {
      const RecordedCall& second = recording_.calls[other];
      if (other > call && other >= recording_.forward_calls && other < backward &&
          second.calls(first.op->schema().name().c_str()) &&
          second.arguments[1].tensor == first.arguments[1].tensor) {
        return true;
      }
    }
    return false;
  }

  // Returns whether backward computes the gradient of the input, perhaps after it makes
  // the call again. Both calls of a convolution must use the same kernel.
  bool wants_input_gradient(const ImageLayer& layer) const {
    const RecordedCall& forward = recording_.calls[layer.forward];
    if (layer.backward >= 0 || layer.fused.layer.kind != LayerKind::conv2d) {
      return layer.grad_input != kNoTensor;
    }
    for (const size_t other : readers_.of(forward.arguments[1].tensor)) {
      if (other > layer.forward && other >= recording_.forward_calls &&
          recording_.calls[other].calls("aten::convolution")) {
        const Found again = convolution(other);
        return again && again->grad_input != kNoTensor;
      }
    }
    return false;
  }

  // convolution(input, weight, bias, stride, padding, dilation, transposed,
  // output_padding, groups)
  Found convolution(size_t call) const {
    const CallReader reader(recording_, call);
    const auto weight = reader.fixed(1);
    const bool has_bias = reader.id(2) != kNoTensor;
    if (!is_images(reader.tensor(0)) || !weight.defined() || weight.dim() != 4 ||
        weight.size(2) != weight.size(3) || (has_bias && !reader.fixed(2).defined()) ||
        reader.square(3) < 1 || reader.square(4) < 0 || !reader.all(5, 1) ||
        reader.flag(6) ||
        !is_images(&recording_.tensors[static_cast<size_t>(reader.result(0))])) {
      return std::nullopt;
    }
    ImageLayer found;
    Layer& layer = found.fused.layer;
    layer.kind = LayerKind::conv2d;
    layer.out = weight.size(0);
    layer.in = reader.tensor(0)->sizes[1];
    layer.kernel = weight.size(2);
    layer.stride = reader.square(3);
    layer.padding = reader.square(4);
    found.tensors.weight = by_groups(weight, layer.in);
    found.tensors.bias = has_bias ? reader.fixed(2) : at::zeros({layer.out});
    // convolution_backward(grad_output, input, weight, bias_sizes, stride, padding,
    // dilation, transposed, output_padding, groups, output_mask)
    for (const size_t reading : readers_.of(reader.id(1))) {
      const RecordedCall& backward = recording_.calls[reading];
      if (reading <= call || !backward.calls("aten::convolution_backward") ||
          backward.arguments[1].tensor != reader.id(0) || runs_again(call, reading)) {
        continue;
      }
      if (found.backward >= 0) {
        // Several convolutions share input and weights.
        return std::nullopt;
      }
      found.backward = static_cast<int64_t>(reading);
    }
    return with_backward(std::move(found), 10);
  }

  // Returns the weight of a convolution in the shape that has_groups() recognizes.
  static at::Tensor by_groups(const at::Tensor& weight, int64_t in) {
    const int64_t groups = in / weight.size(1);
    return groups == 1 ? weight
                       : weight.view(
                             {groups, weight.size(0) / groups, weight.size(1),
                              weight.size(2), weight.size(3)});
  }

  // native_batch_norm(input, weight, bias, running_mean, running_var, training,
  // momentum, eps)
  Found batch_norm(size_t call) const {
    const CallReader reader(recording_, call);
    ImageLayer found;
    found.fused.layer.kind = LayerKind::batch_norm2d;
    LayerTensors& tensors = found.tensors;
    at::Tensor* const states[] = {
        &tensors.weight, &tensors.bias, &tensors.running_mean, &tensors.running_var};
    const bool training = step_.has_backward();
    for (size_t i = 0; i < 4; ++i) {
      // When backward makes the call again, it has no running statistics.
      const bool is_left_out = training && i >= 2 && reader.id(i + 1) == kNoTensor;
      *states[i] = is_left_out ? at::zeros_like(tensors.weight) : reader.fixed(i + 1);
      if (!states[i]->defined()) {
        return std::nullopt;
      }
    }
    if (!is_images(reader.tensor(0)) || reader.flag(5) != training ||
        (training && reader.number(6) != kBatchNormMomentum) ||
        reader.number(7) != kBatchNormEpsilon) {
      return std::nullopt;
    }
    found.fused.layer.in = found.fused.layer.out = tensors.weight.numel();
    // A node of the graph counts the batches.
    tensors.num_batches = at::zeros({}, at::kLong);
    // native_batch_norm_backward(grad_out, input, weight, running_mean, running_var,
    // save_mean, save_invstd, train, eps, output_mask)
    found.backward = readers_.only(reader.result(1));
    const bool has_backward = !readers_.of(reader.result(1)).empty() ||
                              !readers_.of(reader.result(2)).empty();
    if (training && has_backward &&
        (found.backward < 0 || readers_.only(reader.result(2)) != found.backward ||
         !call_at(found.backward).calls("aten::native_batch_norm_backward") ||
         call_at(found.backward).arguments[1].tensor != reader.id(0))) {
      return std::nullopt;
    }
    return with_backward(std::move(found), 9);
  }

  // max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
  Found max_pool(size_t call) const {
    const CallReader reader(recording_, call);
    auto found = pool(call);
    if (!found || found->fused.layer.kernel > kMostPoolSize || !reader.all(4, 1) ||
        reader.flag(5)) {
      return std::nullopt;
    }
    // max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride, padding,
    // dilation, ceil_mode, indices)
    const auto& uses = readers_.of(reader.result(1));
    if (uses.empty()) {
      return found;
    }
    found->backward = readers_.only(reader.result(1));
    return found->backward >= 0 && call_at(found->backward)
                                       .calls("aten::max_pool2d_with_indices_backward")
               ? pool_with_backward(std::move(*found), reader.id(0))
               : std::nullopt;
  }

  // avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad,
  // divisor_override)
  Found average_pool(size_t call) const {
    const CallReader reader(recording_, call);
    auto found = pool(call);
    if (!found || reader.flag(4) ||
        !recording_.calls[call].arguments[6].constant.isNone()) {
      return std::nullopt;
    }
    found->is_average = true;
    // avg_pool2d_backward(grad_output, self, kernel_size, ...)
    for (const size_t reading : readers_.of(reader.id(0))) {
      if (!recording_.calls[reading].calls("aten::avg_pool2d_backward") ||
          runs_again(call, reading)) {
        continue;
      }
      if (found->backward >= 0) {
        // Several pools share the input.
        return std::nullopt;
      }
      found->backward = static_cast<int64_t>(reading);
    }
    return found->backward < 0 ? found
                               : pool_with_backward(std::move(*found), reader.id(0));
  }

  // Reads the window of a pool whose windows do not overlap.
  Found pool(size_t call) const {
    const CallReader reader(recording_, call);
    ImageLayer found;
    Layer& layer = found.fused.layer;
    layer.kind = LayerKind::max_pool2d;
    layer.kernel = reader.square(1);
    const auto strides = recording_.calls[call].arguments[2].constant.toIntVector();
    layer.stride = strides.empty() ? layer.kernel : reader.square(2);
    return is_images(reader.tensor(0)) && layer.kernel >= 1 &&
                   layer.stride == layer.kernel && reader.all(3, 0)
               ? Found(found)
               : std::nullopt;
  }

  Found pool_with_backward(ImageLayer found, RecordedId input) const {
    const RecordedCall& backward = call_at(found.backward);
    found.grad_output = backward.arguments[0].tensor;
    found.grad_input = backward.results[0];
    return backward.arguments[1].tensor == input &&
                   is_images(
                       &recording_.tensors[static_cast<size_t>(found.grad_output)])
               ? Found(std::move(found))
               : std::nullopt;
  }

  // Completes a layer with parameters by the results of its backward call.
  Found with_backward(ImageLayer found, size_t mask) const {
    if (found.backward < 0) {
      return found;
    }
    const CallReader reader(recording_, static_cast<size_t>(found.backward));
    found.grad_output = reader.id(0);
    if (!is_images(reader.tensor(0))) {
      return std::nullopt;
    }
    if (reader.flag(mask, 0)) {
      found.grad_input = reader.result(0);
    }
    const bool weight = reader.flag(mask, 1);
    const bool bias = reader.flag(mask, 2);
    if (!weight && !bias) {
      return found;
    }
    const RecordedId results[] = {
        weight ? reader.result(1) : kNoTensor, bias ? reader.result(2) : kNoTensor};
    const at::Tensor in_arena[] = {
        gradient_in_arena(results[0]), gradient_in_arena(results[1])};
    found.accumulates =
        (!weight || in_arena[0].defined()) && (!bias || in_arena[1].defined());
    if (found.accumulates) {
      for (const RecordedId result : results) {
        if (result != kNoTensor) {
          found.absorbed.push_back(readers_.of(result)[0]);
        }
      }
    } else {
      found.grad_weight = results[0];
      found.grad_bias = results[1];
    }
    const auto target = [&](size_t i, const at::Tensor& like) {
      return found.accumulates && results[i] != kNoTensor ? in_arena[i]
                                                          : at::empty_like(like);
    };
    found.tensors.weight_grad =
        target(0, found.tensors.weight).view(found.tensors.weight.sizes());
    found.tensors.bias_grad = target(1, found.tensors.bias);
    return found;
  }

  // Returns the tensor of the arena to which one call adds the gradient, if nothing
  // else reads the gradient; otherwise an undefined tensor.
  at::Tensor gradient_in_arena(RecordedId gradient) const {
    const int64_t reading = gradient == kNoTensor ? -1 : readers_.only(gradient);
    if (reading < 0 || !call_at(reading).calls("aten::add_")) {
      return {};
    }
    const CallReader reader(recording_, static_cast<size_t>(reading));
    return reader.id(1) == gradient && reader.number(2) == 1 ? reader.fixed(0)
                                                             : at::Tensor();
  }

  // Fuses a ReLU after the layer, and its backward call.
  void fuse_relu(ImageLayer& layer) const {
    if (layer.fused.layer.kind == LayerKind::max_pool2d) {
      return;
    }
    const int64_t relu = readers_.only(layer.output);
    if (relu < 0 ||
        !(call_at(relu).calls("aten::relu") || call_at(relu).calls("aten::relu_"))) {
      return;
    }
    const RecordedId result = call_at(relu).results[0];
    if (layer.backward < 0) {
      layer.fused.relu = true;
      layer.output = result;
      layer.absorbed.push_back(static_cast<size_t>(relu));
      return;
    }
    // threshold_backward(grad_output, self, threshold); the kernel of a convolution
    // writes into the gradient, so nothing else may read it.
    for (const size_t reading : readers_.of(result)) {
      const RecordedCall& backward = recording_.calls[reading];
      if (!backward.calls("aten::threshold_backward") ||
          backward.arguments[1].tensor != result ||
          readers_.only(backward.results[0]) != layer.backward ||
          backward.results[0] != layer.grad_output ||
          (layer.fused.layer.kind == LayerKind::conv2d &&
           readers_.only(backward.arguments[0].tensor) < 0) ||
          CallReader(recording_, reading).number(2) != 0) {
        continue;
      }
      layer.fused.relu = true;
      layer.output = result;
      layer.grad_output = backward.arguments[0].tensor;
      layer.absorbed.push_back(static_cast<size_t>(relu));
      layer.absorbed.push_back(reading);
      return;
    }
  }

  const RecordedStep& step_;
  const Recording& recording_;
  Readers readers_;
};

}  // namespace

std::string ImageLayer::text() const {
  const Layer& layer = fused.layer;
  const std::string window = fmt::format(" {0} x {0}", layer.kernel);
  std::string text = layer.kind == LayerKind::batch_norm2d ? "batch norm"
                     : is_average                          ? "average pool" + window
                     : layer.kind == LayerKind::max_pool2d ? "max pool" + window
                                                           : "convolution" + window;
  if (layer.kind == LayerKind::conv2d) {
    text += has_groups(tensors) ? fmt::format(" in {} groups", tensors.weight.size(0))
            : uses_winograd     ? ", Winograd"
                                : "";
  }
  return text + (fused.relu ? " + ReLU" : "");
}

std::vector<ImageLayer> image_layers_in(const RecordedStep& step) {
  const Finder finder(step);
  std::vector<ImageLayer> layers;
  for (size_t call = 0; call < step.recording.calls.size(); ++call) {
    if (auto found = finder.layer_at(call)) {
      layers.push_back(std::move(*found));
    }
  }
  return layers;
}

}  // namespace tandem
