#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "tandem/core/simd.h"
#include "tandem/optim/algorithm.h"

namespace tandem {

/// Returns gradient_scale * grad + weight_decay * param. `weight_decay` is equal for
/// all elements, so the compiler can move the condition out of the caller's loop and
/// vectorise the loop.
template <typename T>
TANDEM_ALWAYS_INLINE T
decayed_gradient(T grad, T param, T gradient_scale, T weight_decay) {
  T g = gradient_scale * grad;
  if (weight_decay != 0) {
    g += weight_decay * param;
  }
  return g;
}

template <typename T, typename Element, typename... States>
TANDEM_ALWAYS_INLINE void update_loop(
    int64_t n, T* __restrict param, const T* __restrict grad, const Element element,
    States* __restrict... states) {
  for (int64_t i = 0; i < n; ++i) {
    element(grad[i], param[i], states[i]...);
  }
}

template <typename T, typename Element, typename... States>
TANDEM_SIMD_CLONES void update_arrays(
    int64_t n, T* param, const T* grad, Element element, States*... states) {
  update_loop(n, param, grad, element, states...);
}

template <typename T, typename Element, size_t... i>
void update_each(
    const Elements& elements, const Element& element, std::index_sequence<i...>) {
  update_arrays(
      elements.count, static_cast<T*>(elements.param),
      static_cast<const T*>(elements.grad), element,
      static_cast<T*>(elements.states[i])...);
}

/// Calls element(grad, param, first state, ...) for each of the elements, whose type is
/// T. An Element is a struct of numbers that are equal for all elements. Its type is in
/// an unnamed namespace, because the code is compiled for several instruction sets. Its
/// operator() is TANDEM_ALWAYS_INLINE; the compiler moves conditions on its members out
/// of the loop.
template <size_t num_states, typename T, typename Element>
void update_each(const Elements& elements, const Element& element) {
  static_assert(num_states <= kMaxStates);
  update_each<T>(elements, element, std::make_index_sequence<num_states>());
}

/// Calls `body` with a zero of type `dtype`, float or double. A generic lambda can thus
/// use the type of its argument.
template <typename Body>
void with_dtype(at::ScalarType dtype, Body&& body) {
  if (dtype == at::kDouble) {
    body(double{0});
  } else {
    body(float{0});
  }
}

}  // namespace tandem
