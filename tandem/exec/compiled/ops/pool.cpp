#include <algorithm>
#include <vector>

#include "tandem/core/parallel.h"
#include "tandem/exec/compiled/node_reader.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/kernels/isa.h"
#include "tandem/kernels/pool_loops.h"

namespace tandem {

namespace {

using dnnl::memory;

// Pooling by custom loops. They are several times faster than the primitives of oneDNN,
// which keep a layout that is slow in backward.
class Pool : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    const OnednnType type = type_of(input);
    const OnednnDims in = dims_of(input);
    const auto [tag, lanes] = pixel_layout_for(input);
    plan_input(input, {in, type, tag});
    shape_ = {
        in[0] * ((in[1] + lanes - 1) / lanes), in[2], in[3], lanes, layer_.kernel};
    output_ = make_value(
        {{in[0], in[1], shape_.out_height(), shape_.out_width()}, type, tag});
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    plan_grad_output(grad_output);
    grad_input_ = make_value(input_.get_desc());
    return grad_input_;
  }

 protected:
  // Calls `plane(input offset, output offset)` for every plane, on all threads.
  template <typename Plane>
  void for_each_plane(const Plane& plane) const {
    // Smallest number of outputs per thread.
    constexpr int64_t kLeastOutputs = 16'384;
    const int64_t in_size = shape_.height * shape_.width * shape_.lanes;
    const int64_t out_size = shape_.out_height() * shape_.out_width() * shape_.lanes;
    const int64_t grain =
        std::max<int64_t>(1, kLeastOutputs / std::max<int64_t>(1, out_size));
    parallel_for_each(
        shape_.outer, grain, [&](int64_t i) { plane(i * in_size, i * out_size); });
  }

  PoolShape shape_;
};

// Also applies the ReLU.
class MaxPool : public Pool {
 public:
  using Pool::Pool;

  memory plan_forward(const memory& input) override {
    const memory output = Pool::plan_forward(input);
    which_.resize(static_cast<size_t>(elements_of(output)));
    return output;
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    with_type(input_, [&](auto type) { pool<decltype(type)>(); });
  }

  void backward_input() override {
    grad_change_.run(stream());
    with_type(input_, [&](auto type) { spread<decltype(type)>(); });
  }

 private:
  template <typename T>
  void pool() {
    void (*const plane)(const PoolShape&, bool, const T*, T*, uint8_t*) =
        TANDEM_FOR_ISA(decltype(plane), max_pool_plane);
    for_each_plane([&](int64_t in, int64_t out) {
      plane(
          shape_, relu_, data_of<T>(input_) + in, data_of<T>(output_) + out,
          which_.data() + out);
    });
  }
  template <typename T>
  void spread() {
    void (*const plane)(const PoolShape&, const uint8_t*, const T*, T*) =
        TANDEM_FOR_ISA(decltype(plane), spread_plane);
    for_each_plane([&](int64_t in, int64_t out) {
      plane(
          shape_, which_.data() + out, data_of<T>(grad_output_) + out,
          data_of<T>(grad_input_) + in);
    });
  }

  std::vector<uint8_t> which_;
};

// Average pooling in float32.
class AveragePool : public Pool {
 public:
  using Pool::Pool;

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    auto* const plane =
        TANDEM_FOR_ISA(void (*)(const PoolShape&, const float*, float*), mean_plane);
    for_each_plane([&](int64_t in, int64_t out) {
      plane(shape_, data_of<float>(input_) + in, data_of<float>(output_) + out);
    });
  }

  void backward_input() override {
    grad_change_.run(stream());
    auto* const plane = TANDEM_FOR_ISA(
        void (*)(const PoolShape&, const float*, float*), spread_mean_plane);
    for_each_plane([&](int64_t in, int64_t out) {
      plane(
          shape_, data_of<float>(grad_output_) + out, data_of<float>(grad_input_) + in);
    });
  }
};

// max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)
void read_max_pool2d(NodeReader& reader) {
  reader.layer.kernel = reader.square(1, "kernel");
  reader.layer.stride = reader.square(2, "stride", reader.layer.kernel);
  reader.expect(
      reader.layer.stride == reader.layer.kernel, "its windows overlap or have gaps");
  reader.expect_square(3, "padding", 0);
  reader.expect_square(4, "dilation", 1);
  reader.expect(!reader.flag(5), "it rounds sizes up");
}

}  // namespace

KernelRow kernel_row(KindTag<LayerKind::max_pool2d> kind) {
  return {kind, {"aten::max_pool2d"}, &make_op<MaxPool>, &read_max_pool2d};
}

std::unique_ptr<OnednnOp> make_onednn_average_pool(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  return make_op<AveragePool>(fused, tensors, context);
}

}  // namespace tandem
