#include "tandem/exec/compiled/program/image_planner.h"

#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/exec/compiled/onednn_library.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/program/image_layers.h"
#include "tandem/exec/compiled/program/image_values.h"
#include "tandem/kernels/flush_denormals.h"

namespace tandem {

namespace {

using dnnl::memory;

// Returns the operator with the argument `out` that computes a call for each element
// separately, or the operator itself if it writes in place.
std::optional<c10::OperatorHandle> pointwise_operator(const RecordedCall& call) {
  static const std::set<std::string> kPointwise = {
      "aten::add",
      "aten::sub",
      "aten::mul",
      "aten::div",
      "aten::neg",
      "aten::relu",
      "aten::threshold_backward",
      "aten::sigmoid",
      "aten::sigmoid_backward",
      "aten::tanh",
      "aten::tanh_backward",
      "aten::silu",
      "aten::silu_backward",
      "aten::gelu",
      "aten::gelu_backward",
      "aten::elu",
      "aten::leaky_relu",
      "aten::leaky_relu_backward",
      "aten::hardtanh",
      "aten::hardtanh_backward",
      "aten::hardswish",
      "aten::hardswish_backward",
      "aten::hardsigmoid",
      "aten::hardsigmoid_backward",
      "aten::clone"};
  static const std::set<std::string> kInPlace = {
      "aten::add_",        "aten::sub_",        "aten::mul_",      "aten::div_",
      "aten::relu_",       "aten::sigmoid_",    "aten::tanh_",     "aten::silu_",
      "aten::elu_",        "aten::leaky_relu_", "aten::hardtanh_", "aten::hardswish_",
      "aten::hardsigmoid_"};
  if (!call.op) {
    return std::nullopt;
  }
  const std::string& name = call.op->schema().name();
  if (kInPlace.count(name) > 0) {
    return *call.op;
  }
  if (kPointwise.count(name) == 0) {
    return std::nullopt;
  }
  for (const char* overload : {"out", "grad_input"}) {
    const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
    if (op &&
        op->schema().arguments().size() == call.op->schema().arguments().size() + 1) {
      return *op;
    }
  }
  return std::nullopt;
}

class ImagePlanner : public CallPlanner {
 public:
  ImagePlanner(const RecordedStep& step, const OnednnContext& context)
      : recording_(step.recording),
        results_(step.results.begin(), step.results.end()),
        context_(with_pool(context, pool_)),
        images_(step.recording, context_),
        layers_(image_layers_in(step)),
        ops_(layers_.size()) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      forward_of_[layers_[i].forward] = i;
      if (layers_[i].backward >= 0) {
        backward_of_[static_cast<size_t>(layers_[i].backward)] = i;
      }
      absorbed_.insert(layers_[i].absorbed.begin(), layers_[i].absorbed.end());
    }
    count_views();
    find_last_uses();
  }

  void plan(size_t call, std::vector<Instruction>& program) override {
    plan_call(call, program);
    for (const RecordedId id : dying_[call]) {
      images_.release(id);
    }
  }
  void provide(RecordedId id, std::vector<Instruction>& program) override {
    if (id != kNoTensor) {
      images_.provide_tensor(id, 0, program);
    }
  }

  int64_t kept_bytes() const override {
    return pool_.bytes();
  }

 private:
  static OnednnContext with_pool(OnednnContext context, MemoryPool& pool) {
    context.pool = &pool;
    return context;
  }

  void plan_call(size_t call, std::vector<Instruction>& program) {
    if (absorbed_.count(call) > 0 || has_no_effect(recording_.calls[call])) {
      return;
    }
    if (const auto layer = forward_of_.find(call); layer != forward_of_.end()) {
      plan_forward(layer->second, recording_.calls[call].layer, program);
    } else if (const auto back = backward_of_.find(call); back != backward_of_.end()) {
      plan_backward(back->second, recording_.calls[call].layer, program);
    } else if (!plan_pointwise(recording_.calls[call], program)) {
      plan_plain(recording_.calls[call], program);
    }
  }

  // Finds the last call that reads each tensor. Kernels read their input, the gradient
  // of their output and, with a ReLU, their output in backward.
  void find_last_uses() {
    std::vector<size_t> last(recording_.tensors.size(), 0);
    const auto use = [&](RecordedId id, size_t call) {
      if (id != kNoTensor) {
        auto& found = last[static_cast<size_t>(id)];
        found = std::max(found, call);
      }
    };
    for (size_t call = 0; call < recording_.calls.size(); ++call) {
      for_each_read(recording_.calls[call], [&](RecordedId id) { use(id, call); });
      for (const RecordedId id : recording_.calls[call].results) {
        use(id, call);
      }
    }
    for (const auto& layer : layers_) {
      if (layer.backward >= 0) {
        const auto backward = static_cast<size_t>(layer.backward);
        use(layer.input, backward);
        use(layer.grad_output, backward);
        use(layer.fused.relu ? layer.output : kNoTensor, backward);
      }
    }
    dying_.resize(recording_.calls.size());
    for (size_t id = 0; id < last.size(); ++id) {
      if (results_.count(static_cast<RecordedId>(id)) == 0 && !dying_.empty()) {
        dying_[last[id]].push_back(static_cast<RecordedId>(id));
      }
    }
  }

  // A call such as detach() whose result is its argument.
  static bool has_no_effect(const RecordedCall& call) {
    return call.op && call.results.size() == 1 && !call.arguments.empty() &&
           call.results[0] != kNoTensor && call.results[0] == call.arguments[0].tensor;
  }

  // Marks memory that views show in several shapes. Only tensors are such views.
  void count_views() {
    for (const auto& tensor : recording_.tensors) {
      const auto& root = recording_.tensors[static_cast<size_t>(tensor.root)];
      if (tensor.sizes != root.sizes || !tensor.is_contiguous) {
        viewed_.insert(tensor.root);
      }
    }
  }

  void plan_plain(const RecordedCall& call, std::vector<Instruction>& program) {
    for_each_read(
        call, [&](RecordedId id) { images_.provide_tensor(id, call.layer, program); });
    program.push_back(instruction_of(call));
  }

  void plan_forward(size_t index, size_t layer, std::vector<Instruction>& program) {
    ImageLayer& found = layers_[index];
    const memory input = images_.image(found.input, layer, program);
    found.uses_winograd = uses_winograd(found, dims_of(input));
    const auto make = found.uses_winograd ? &make_onednn_winograd
                      : found.is_average  ? &make_onednn_average_pool
                                          : &make_onednn_op;
    ops_[index] = make(found.fused, found.tensors, context_);
    OnednnOp* const op = ops_[index].get();
    images_.set(found.output, op->plan_forward(input));
    program.push_back(
        {found.text(),
         [op](ProgramState& state) {
           const FlushDenormals flush;
           op->forward({state.samples, state.parameters_version});
         },
         {},
         {found.output},
         layer});
  }

  bool uses_winograd(const ImageLayer& found, const OnednnDims& input) const {
    return found.fused.layer.kind == LayerKind::conv2d && !has_groups(found.tensors) &&
           !fits_small_convolution(found.fused) &&
           fits_winograd(
               found.fused, context_, winograd_tiles(found.fused.layer, input));
  }

  // Returns the number of tiles of 4 x 4 pixels in all outputs.
  static int64_t winograd_tiles(const Layer& layer, const OnednnDims& input) {
    const auto tiles = [&](int64_t size) {
      return (size + 2 * layer.padding - layer.kernel + 1 + 3) / 4;
    };
    return input[0] * tiles(input[2]) * tiles(input[3]);
  }

  void plan_backward(size_t index, size_t layer, std::vector<Instruction>& program) {
    const ImageLayer& found = layers_[index];
    OnednnOp* const op = ops_[index].get();
    const bool wants_input = found.grad_input != kNoTensor;
    const memory grad_input = op->plan_backward(
        images_.image(found.grad_output, layer, program), wants_input);
    if (wants_input) {
      images_.set(found.grad_input, grad_input);
    }
    Instruction instruction{
        found.text(),
        [this, op, wants_input, found](ProgramState& state) {
          const FlushDenormals flush;
          op->backward_parameters(found.accumulates);
          if (wants_input) {
            op->backward_input();
          }
          const auto put = [&](RecordedId id, const at::Tensor& gradient) {
            if (id != kNoTensor) {
              const auto& sizes = recording_.tensors[static_cast<size_t>(id)].sizes;
              state.tensors[static_cast<size_t>(id)] =
                  (results_.count(id) > 0 ? gradient.clone() : gradient).view(sizes);
            }
          };
          put(found.grad_weight, found.tensors.weight_grad);
          put(found.grad_bias, found.tensors.bias_grad);
        },
        {},
        {found.grad_input, found.grad_weight, found.grad_bias},
        layer};
    program.push_back(std::move(instruction));
  }

  // Runs a call for each element on images of one layout, as a call on flat tensors.
  bool plan_pointwise(const RecordedCall& call, std::vector<Instruction>& program) {
    const auto op = pointwise_operator(call);
    const auto layout = op ? layout_of(call) : std::nullopt;
    if (!layout) {
      return false;
    }
    std::vector<c10::IValue> stack;
    for (const auto& argument : call.arguments) {
      stack.push_back(
          argument.tensor == kNoTensor
              ? argument.constant
              : c10::IValue(flat_tensor(
                    images_.image_in(*layout, argument.tensor, call.layer, program))));
    }
    const bool in_place = op->schema().arguments().size() == call.arguments.size();
    const memory result =
        in_place ? images_.image(call.arguments[0].tensor, call.layer, program)
                 : images_.make(*layout);
    if (!in_place) {
      stack.emplace_back(flat_tensor(result));
    }
    images_.set(call.results[0], result);
    program.push_back(
        {op->schema().name() + " of images",
         [op = *op, stack](ProgramState&) {
           auto arguments = stack;
           op.callBoxed(&arguments);
         },
         {},
         {call.results[0]},
         call.layer});
    return true;
  }

  // Returns the layout in which the call runs: of its first image, if all arguments
  // and the result are images of equal sizes without padding.
  std::optional<memory::desc> layout_of(const RecordedCall& call) const {
    const auto is_of_size = [&](RecordedId id, const std::vector<int64_t>& sizes) {
      const auto& tensor = recording_.tensors[static_cast<size_t>(id)];
      return is_images(&tensor) && tensor.sizes == sizes && !tensor.fixed.defined() &&
             viewed_.count(tensor.root) == 0;
    };
    const RecordedId result = call.results.at(0);
    if (result == kNoTensor) {
      return std::nullopt;
    }
    const auto& sizes = recording_.tensors[static_cast<size_t>(result)].sizes;
    bool fits = is_of_size(result, sizes);
    std::optional<memory::desc> layout;
    for_each_read(call, [&](RecordedId id) {
      fits = fits && is_of_size(id, sizes);
      if (fits && !layout && images_.is_image(id)) {
        layout = images_.layout(id);
      }
    });
    const auto bytes =
        static_cast<size_t>(c10::multiply_integers(sizes)) * sizeof(float);
    const bool padded = layout && layout->get_size() != bytes;
    return fits && !padded ? layout : std::nullopt;
  }

  const Recording& recording_;
  // Results of the step, which must not be memory of a kernel.
  std::set<RecordedId> results_;
  MemoryPool pool_;
  OnednnContext context_;
  ImageValues images_;
  std::vector<ImageLayer> layers_;
  std::vector<std::unique_ptr<OnednnOp>> ops_;
  // Indices of layers by call.
  std::map<size_t, size_t> forward_of_;
  std::map<size_t, size_t> backward_of_;
  std::set<size_t> absorbed_;
  // For each call, the tensors that no later call reads.
  std::vector<std::vector<RecordedId>> dying_;
  // Roots of memory that views show in another shape.
  std::set<RecordedId> viewed_;
};

}  // namespace

std::unique_ptr<CallPlanner> plan_image_kernels(const RecordedStep& step) {
  // With PyPI's LibTorch, this loads oneDNN.
  const std::string obstacle = onednn_obstacle();
  TANDEM_CHECK(obstacle.empty(), obstacle);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  set_onednn_threads(at::get_num_threads());
  return std::make_unique<ImagePlanner>(
      step,
      OnednnContext{engine, dnnl::stream(engine), step.has_backward(), Numerics()});
}

}  // namespace tandem
