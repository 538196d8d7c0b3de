#pragma once

#include <dnnl.hpp>

// The descriptions of primitives, whose spelling differs between oneDNN 2 and 3.

namespace tandem::onednn {

using dnnl::algorithm;
using dnnl::engine;
using dnnl::primitive_attr;
using dnnl::prop_kind;
using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

/// A convolution's tensors; the same on both sides are stride and padding.
struct ConvolutionShape {
  Desc source;
  Desc weights;
  Desc bias;
  Desc destination;
  Dims stride;
  Dims padding;
};

inline dnnl::convolution_forward::primitive_desc convolution_forward(
    const engine& on, prop_kind kind, algorithm which, const ConvolutionShape& s,
    const primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {on,       kind,      which,     s.source,  s.weights, s.bias, s.destination,
          s.stride, s.padding, s.padding, attributes};
#else
  return {
      {kind, which, s.source, s.weights, s.bias, s.destination, s.stride, s.padding,
       s.padding},
      attributes,
      on};
#endif
}

inline dnnl::convolution_backward_weights::primitive_desc convolution_backward_weights(
    const engine& on, algorithm which, const ConvolutionShape& s,
    const dnnl::convolution_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {on,       which,     s.source,  s.weights, s.bias, s.destination,
          s.stride, s.padding, s.padding, forward};
#else
  return {
      {which, s.source, s.weights, s.bias, s.destination, s.stride, s.padding,
       s.padding},
      on,
      forward};
#endif
}

inline dnnl::convolution_backward_data::primitive_desc convolution_backward_data(
    const engine& on, algorithm which, const ConvolutionShape& s,
    const dnnl::convolution_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {on,       which,     s.source,  s.weights, s.destination,
          s.stride, s.padding, s.padding, forward};
#else
  return {
      {which, s.source, s.weights, s.destination, s.stride, s.padding, s.padding},
      on,
      forward};
#endif
}

inline dnnl::inner_product_forward::primitive_desc inner_product_forward(
    const engine& on, prop_kind kind, const Desc& source, const Desc& weights,
    const Desc& bias, const Desc& destination, const primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {on, kind, source, weights, bias, destination, attributes};
#else
  return {{kind, source, weights, bias, destination}, attributes, on};
#endif
}

inline dnnl::inner_product_backward_weights::primitive_desc
inner_product_backward_weights(
    const engine& on, const Desc& source, const Desc& weights, const Desc& destination,
    const dnnl::inner_product_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {on, source, weights, destination, forward};
#else
  return {{source, weights, destination}, on, forward};
#endif
}

inline dnnl::inner_product_backward_data::primitive_desc inner_product_backward_data(
    const engine& on, const Desc& source, const Desc& weights, const Desc& destination,
    const dnnl::inner_product_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {on, source, weights, destination, forward};
#else
  return {{source, weights, destination}, on, forward};
#endif
}

inline dnnl::batch_normalization_forward::primitive_desc batch_norm_forward(
    const engine& on, prop_kind kind, const Desc& data, float epsilon,
    dnnl::normalization_flags flags) {
#if DNNL_VERSION_MAJOR >= 3
  return {on, kind, data, data, epsilon, flags};
#else
  return {{kind, data, epsilon, flags}, on};
#endif
}

inline dnnl::batch_normalization_backward::primitive_desc batch_norm_backward(
    const engine& on, const Desc& data, float epsilon, dnnl::normalization_flags flags,
    const dnnl::batch_normalization_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {on, prop_kind::backward, data, data, data, epsilon, flags, forward};
#else
  return {{prop_kind::backward, data, data, epsilon, flags}, on, forward};
#endif
}

}  // namespace tandem::onednn
