#include "tandem/exec/compiled/onednn_memory.h"

#include <ATen/ops/from_blob.h>

#include "tandem/exec/compiled/onednn_primitives.h"

namespace tandem {

using dnnl::memory;

OnednnDims dims_of(const memory& m) {
#if DNNL_VERSION_MAJOR >= 3
  return m.get_desc().get_dims();
#else
  return m.get_desc().dims();
#endif
}

OnednnType type_of(const memory& m) {
  return onednn::type_of(m.get_desc());
}

int64_t elements_of(const memory& m) {
  return static_cast<int64_t>(
      m.get_desc().get_size() / memory::data_type_size(type_of(m)));
}

memory::desc plain_desc(const OnednnDims& dims, OnednnType type) {
  OnednnDims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * dims[i];
  }
  return {dims, type, strides};
}

memory::desc any_desc(const OnednnDims& dims, OnednnType type) {
  return {dims, type, memory::format_tag::any};
}

PixelLayout pixel_layout_for(const memory& m) {
  using Tag = memory::format_tag;
  const OnednnDims dims = dims_of(m);
  const PixelLayout blocked[] = {{Tag::nChw16c, 16}, {Tag::nChw8c, 8}};
  for (const auto& layout : blocked) {
    if (m.get_desc() == memory::desc(dims, type_of(m), layout.tag)) {
      return layout;
    }
  }
  return dims[1] % 8 == 0 ? PixelLayout{Tag::nhwc, dims[1]} : blocked[1];
}

memory plain_memory(
    const OnednnDims& dims, const dnnl::engine& engine, void* data, OnednnType type) {
  return data == nullptr ? memory(plain_desc(dims, type), engine)
                         : memory(plain_desc(dims, type), engine, data);
}

memory plain_over(const at::Tensor& tensor, const dnnl::engine& engine) {
  return plain_memory(tensor.sizes().vec(), engine, tensor.data_ptr<float>());
}

at::Tensor tensor_over(const memory& m) {
  return at::from_blob(
      m.get_data_handle(), dims_of(m), [m](void*) {}, at::kFloat);
}

BoundPrimitive::BoundPrimitive(dnnl::primitive primitive, Arguments arguments)
    : primitive_(std::move(primitive)), arguments_(std::move(arguments)) {
  for (const auto& [index, value] : arguments_) {
    bound_.push_back({index, value.get()});
  }
}

void BoundPrimitive::run(const dnnl::stream& stream) const {
  if (!bound_.empty()) {
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(
            primitive_.get(), stream.get(), static_cast<int>(bound_.size()),
            bound_.data()),
        "could not execute a primitive");
  }
}

memory LayoutChange::plan(
    const memory& from, const memory::desc& wanted, const OnednnContext& context) {
  if (from.get_desc() == wanted) {
    return from;
  }
  const memory to(wanted, context.engine);
  reorder_ = {dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
  return to;
}

memory PackedProduct::plan_forward(
    const dnnl::primitive_desc& primitive, const memory& input,
    const at::Tensor& weight, const at::Tensor& bias, const memory& output,
    const OnednnContext& context) {
  const memory source = input_change_.plan(input, primitive.src_desc(), context);
  forward_ = {
      dnnl::primitive(primitive),
      {{DNNL_ARG_SRC, source},
       {DNNL_ARG_WEIGHTS,
        forward_weights_.plan(
            plain_over(weight, context.engine), primitive.weights_desc(), context)},
       {DNNL_ARG_BIAS, plain_over(bias, context.engine)},
       {DNNL_ARG_DST, output}}};
  return source;
}

memory PackedProduct::plan_backward(
    const dnnl::primitive_desc& primitive, const memory& grad_output,
    const at::Tensor& weight, const OnednnContext& context) {
  const memory grad_input = context.make(primitive.diff_src_desc());
  backward_ = {
      dnnl::primitive(primitive),
      {{DNNL_ARG_DIFF_DST,
        grad_change_.plan(grad_output, primitive.diff_dst_desc(), context)},
       {DNNL_ARG_WEIGHTS,
        backward_weights_.plan(
            plain_over(weight, context.engine), primitive.weights_desc(), context)},
       {DNNL_ARG_DIFF_SRC, grad_input}}};
  return grad_input;
}

void PackedProduct::forward(int64_t parameters_version, const dnnl::stream& stream) {
  input_change_.run(stream);
  if (std::exchange(version_, parameters_version) != parameters_version) {
    forward_weights_.run(stream);
    backward_weights_.run(stream);
  }
  forward_.run(stream);
}

void PackedProduct::backward(const dnnl::stream& stream) const {
  grad_change_.run(stream);
  backward_.run(stream);
}

dnnl::primitive_attr attributes_with_relu(bool relu) {
  dnnl::primitive_attr attributes;
  if (relu) {
    dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
    after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
#else
    after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
#endif
    attributes.set_post_ops(after);
  }
  return attributes;
}

void GradientStore::plan(
    const memory& from, const at::Tensor& gradient, const OnednnContext& context) {
  const memory to = plain_over(gradient, context.engine);
  dnnl::post_ops sum;
  sum.append_sum(1);
  dnnl::primitive_attr adds;
  adds.set_post_ops(sum);
  const BoundPrimitive::Arguments arguments = {
      {DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  set_ = {dnnl::reorder(from, to), arguments};
  add_ = {dnnl::reorder(from, to, adds), arguments};
}

}  // namespace tandem
