#include <vector>

#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pool_kernels.h"

namespace tandem {

namespace {

using dnnl::memory;

// The passes are our own: they take the ReLU along, and are several times faster than
// oneDNN's, which keeps a layout that does not suit its backward.
class MaxPool : public OnednnOp {
 public:
  MaxPool(const FusedLayer& fused, const OnednnContext& context)
      : OnednnOp(context), layer_(fused.layer), relu_(fused.relu) {}

  memory plan_forward(const memory& input) override {
    const OnednnType type = type_of(input);
    const OnednnDims in = dims_of(input);
    const auto [tag, lanes] = pixel_layout_for(input);
    input_ = change_.plan(input, {in, type, tag}, context_);
    shape_ = {
        in[0] * ((in[1] + lanes - 1) / lanes), in[2], in[3], lanes, layer_.kernel};
    output_ =
        make({{in[0], in[1], shape_.out_height(), shape_.out_width()}, type, tag});
    which_.resize(static_cast<size_t>(elements_of(output_)));
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    grad_output_ = grad_change_.plan(grad_output, output_.get_desc(), context_);
    grad_input_ = make(input_.get_desc());
    return grad_input_;
  }

  void forward(const OnednnPass&) override {
    change_.run(stream());
    if (type_of(input_) == OnednnType::bf16) {
      pool<Bf16>();
    } else {
      pool<float>();
    }
  }

  void backward_input() override {
    grad_change_.run(stream());
    if (type_of(input_) == OnednnType::bf16) {
      spread<Bf16>();
    } else {
      spread<float>();
    }
  }

 private:
  template <typename T>
  void pool() {
    max_pool(shape_, relu_, data_of<T>(input_), data_of<T>(output_), which_.data());
  }
  template <typename T>
  void spread() {
    max_pool_gradient(
        shape_, which_.data(), data_of<T>(grad_output_), data_of<T>(grad_input_));
  }

  Layer layer_;
  bool relu_;
  PoolShape shape_;
  memory input_;
  memory output_;
  memory grad_output_;
  memory grad_input_;
  std::vector<uint8_t> which_;
  LayoutChange change_;
  LayoutChange grad_change_;
};

}  // namespace

std::unique_ptr<OnednnOp> make_onednn_max_pool(
    const FusedLayer& fused, const LayerTensors&, const OnednnContext& context) {
  return std::make_unique<MaxPool>(fused, context);
}

}  // namespace tandem
