#include "tandem/exec/onednn_memory.h"

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
#if DNNL_VERSION_MAJOR >= 3
  return m.get_desc().get_data_type();
#else
  return m.get_desc().data_type();
#endif
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

memory plain_memory(
    const OnednnDims& dims, const dnnl::engine& engine, void* data, OnednnType type) {
  return data == nullptr ? memory(plain_desc(dims, type), engine)
                         : memory(plain_desc(dims, type), engine, data);
}

memory plain_over(const at::Tensor& tensor, const dnnl::engine& engine) {
  return plain_memory(tensor.sizes().vec(), engine, tensor.data_ptr<float>());
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
