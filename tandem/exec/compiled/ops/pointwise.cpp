#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/exec/compiled/node_reader.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pointwise_kernels.h"

namespace tandem {

namespace {

using dnnl::memory;

// A ReLU that is not fused with a neighboring layer.
class Relu : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    input_ = input;
    output_ = make(input.get_desc());
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    plan_grad_output(grad_output);
    return grad_output_;
  }

  void forward(const OnednnPass&) override {
    with_type(output_, [&](auto type) {
      using T = decltype(type);
      rectify(data_of<T>(input_), elements_of(input_), data_of<T>(output_));
    });
  }

  void backward_input() override {
    grad_change_.run(stream());
    with_type(output_, [&](auto type) {
      using T = decltype(type);
      rectify_gradient(
          data_of<T>(output_), elements_of(output_), data_of<T>(grad_output_));
    });
  }
};

// Dropout on contiguous rows, because masks are in this order. In evaluation, the
// output is the input.
class Dropout : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    if (!context_.training) {
      return input;
    }
    const OnednnDims dims = dims_of(input);
    const bool channels = layer_.kind == LayerKind::dropout2d && dims.size() == 4;
    run_ = channels ? dims[2] * dims[3] : 1;
    samples_ = dims[0];
    const memory::desc rows = plain_desc(dims, type_of(input));
    plan_input(input, rows);
    // Works in place if the input was copied to another layout.
    const bool moved = input_.get_data_handle() != input.get_data_handle();
    output_ = moved ? input_ : make(rows);
    keep_.resize(static_cast<size_t>(elements_of(output_) / run_));
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    plan_grad_output(grad_output);
    return grad_output_;
  }

  void forward(const OnednnPass& pass) override {
    if (!context_.training) {
      return;
    }
    input_change_.run(stream());
    dropout_keep(
        pass.samples, layer_.place, samples_,
        static_cast<int64_t>(keep_.size()) / samples_, layer_.p, keep_.data());
    apply(input_, output_);
  }

  void backward_input() override {
    grad_change_.run(stream());
    apply(grad_output_, grad_output_);
  }

 private:
  void apply(const memory& in, const memory& out) const {
    with_type(out, [&](auto type) {
      using T = decltype(type);
      apply_dropout(
          keep_.data(), run_, factor_, elements_of(out), data_of<T>(in),
          data_of<T>(out));
    });
  }

  float factor_ = static_cast<float>(1 / (1 - layer_.p));
  // Number of neighboring elements that are dropped together.
  int64_t run_ = 1;
  int64_t samples_ = 0;
  std::vector<uint8_t> keep_;
};

class Flatten : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    dims_ = dims_of(input);
    const memory rows =
        input_change_.plan(input, plain_desc(dims_, type_of(input)), context_);
    return plain_memory(
        {dims_[0], elements_of(rows) / dims_[0]}, context_.engine,
        rows.get_data_handle(), type_of(input));
  }

  memory plan_backward(const memory& grad_output, bool) override {
    const memory rows = grad_change_.plan(
        grad_output, plain_desc(dims_of(grad_output), type_of(grad_output)), context_);
    return plain_memory(
        dims_, context_.engine, rows.get_data_handle(), type_of(grad_output));
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
  }
  void backward_input() override {
    grad_change_.run(stream());
  }

 private:
  OnednnDims dims_;
};

// Computes in float32 with plain loops. For the few classes of a classifier, no
// primitive is faster.
class LogSoftmax : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    const OnednnDims dims = dims_of(input);
    count_ = dims[0];
    classes_ = dims[1];
    plan_input(input, plain_desc(dims));
    output_ = make(plain_desc(dims));
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    plan_grad_output(grad_output);
    return grad_output_;
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    for (int64_t i = 0; i < count_; ++i) {
      const float* in = data_of<float>(input_) + i * classes_;
      float* out = data_of<float>(output_) + i * classes_;
      const float most = *std::max_element(in, in + classes_);
      float sum = 0;
      for (int64_t j = 0; j < classes_; ++j) {
        sum += std::exp(in[j] - most);
      }
      const float log_sum = most + std::log(sum);
      for (int64_t j = 0; j < classes_; ++j) {
        out[j] = in[j] - log_sum;
      }
    }
  }

  void backward_input() override {
    grad_change_.run(stream());
    for (int64_t i = 0; i < count_; ++i) {
      const float* out = data_of<float>(output_) + i * classes_;
      float* grad = data_of<float>(grad_output_) + i * classes_;
      float sum = 0;
      for (int64_t j = 0; j < classes_; ++j) {
        sum += grad[j];
      }
      for (int64_t j = 0; j < classes_; ++j) {
        grad[j] -= std::exp(out[j]) * sum;
      }
    }
  }

 private:
  int64_t count_ = 0;
  int64_t classes_ = 0;
};

// dropout(input, p, train), feature_dropout(input, p, train)
void read_dropout(NodeReader& reader) {
  reader.layer.p = reader.flag(2) ? reader.number(1) : 0;
}

void read_dropout2d(NodeReader& reader) {
  reader.layer.p = reader.flag(2) ? reader.number(1) : 0;
  const size_t dimensions = reader.input_dimensions();
  reader.expect(
      dimensions == 4 || dimensions == 2, "its input is neither images nor features");
}

// flatten(input, start_dim, end_dim), view(input, size) and reshape(input, shape) that
// make one row from each sample
void read_flatten(NodeReader& reader) {
  const ValueId id = reader.node().outputs[0];
  const auto& shape = reader.graph().value(id).shape;
  reader.expect(
      shape.size() == 2 && shape[0] == Size{0, 1},
      "it does not make one row from each sample");
}

// log_softmax(input, dim, dtype)
void read_log_softmax(NodeReader& reader) {
  const double dimension = reader.number(1);
  reader.expect(
      dimension == 1 || (dimension == -1 && reader.input_dimensions() == 2),
      "its dimension is not 1");
  reader.expect(reader.constant(2).isNone(), "it has a dtype");
}

}  // namespace

KernelRow kernel_row(KindTag<LayerKind::relu> kind) {
  return {kind, {"aten::relu", "aten::relu_"}, &make_op<Relu>};
}

KernelRow kernel_row(KindTag<LayerKind::dropout> kind) {
  return {kind, {"aten::dropout", "aten::dropout_"}, &make_op<Dropout>, &read_dropout};
}

KernelRow kernel_row(KindTag<LayerKind::dropout2d> kind) {
  return {kind, {"aten::feature_dropout"}, &make_op<Dropout>, &read_dropout2d};
}

KernelRow kernel_row(KindTag<LayerKind::flatten> kind) {
  return {
      kind,
      {"aten::flatten", "aten::view", "aten::reshape"},
      &make_op<Flatten>,
      &read_flatten};
}

KernelRow kernel_row(KindTag<LayerKind::log_softmax> kind) {
  return {
      kind,
      {"aten::log_softmax"},
      &make_op<LogSoftmax>,
      &read_log_softmax,
      Bf16Output::fp32};
}

}  // namespace tandem
