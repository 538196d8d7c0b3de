#pragma once

#include <dnnl.hpp>

/// Functions that describe primitives and memory, for oneDNN 2 and 3. Only oneDNN 2 has
/// separate operation descriptors. The `arguments` and their order are the same for
/// both versions.
namespace tandem::onednn {

inline dnnl::memory::data_type type_of(const dnnl::memory::desc& description) {
#if DNNL_VERSION_MAJOR >= 3
  return description.get_data_type();
#else
  return description.data_type();
#endif
}

/// Returns the description of a forward primitive.
template <typename Primitive, typename... Arguments>
typename Primitive::primitive_desc describe(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, arguments..., attributes};
#else
  return {typename Primitive::desc(arguments...), attributes, engine};
#endif
}

/// Returns the description of a backward primitive. `forward` describes the
/// corresponding forward primitive.
template <typename Primitive, typename Forward, typename... Arguments>
typename Primitive::primitive_desc describe_backward(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const Forward& forward, const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, arguments..., forward, attributes};
#else
  return {typename Primitive::desc(arguments...), attributes, engine, forward};
#endif
}

}  // namespace tandem::onednn
