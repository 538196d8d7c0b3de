#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem {

/// Options of checkpoint().
struct CheckpointOptions {
  // True: backward repeats the random numbers of forward. Saves the state of LibTorch's
  // generators, 5 KB for the CPU's. They belong to the process, so no other thread may
  // draw from them during either run.
  bool preserve_rng_state = true;
  // Tensors that the function changes in place, such as running statistics. The run in
  // backward leaves them unchanged. The buffers of a module are added.
  std::vector<at::Tensor> buffers;
};

/// Functions that checkpoint() uses.
namespace checkpoint_parts {

using Tensors = std::vector<at::Tensor>;

/// checkpoint() for a function of a list of tensors.
Tensors checkpoint(
    CheckpointOptions options, std::function<Tensors(const Tensors&)> function,
    const Tensors& inputs);

inline void append(Tensors& all, const at::Tensor& tensor) {
  all.push_back(tensor);
}
inline void append(Tensors& all, const Tensors& tensors) {
  all.insert(all.end(), tensors.begin(), tensors.end());
}
template <typename... T>
void append(Tensors& all, const std::tuple<T...>& tensors) {
  std::apply([&](const auto&... tensor) { (append(all, tensor), ...); }, tensors);
}

inline size_t count(const at::Tensor&) {
  return 1;
}
inline size_t count(const Tensors& tensors) {
  return tensors.size();
}

/// Returns the next tensor, or the next `count` tensors, of a list.
template <typename T>
T next(Tensors::const_iterator& from, size_t count) {
  if constexpr (std::is_same_v<T, Tensors>) {
    const auto begin = from;
    from += static_cast<std::ptrdiff_t>(count);
    return {begin, from};
  } else {
    return *from++;
  }
}

template <typename... T>
std::tuple<T...> to_tuple(const Tensors& tensors, const std::tuple<T...>*) {
  auto from = tensors.begin();
  return {next<T>(from, 1)...};
}

template <typename F, typename = void>
struct IsModule : std::false_type {};
template <typename F>
struct IsModule<F, std::void_t<decltype(std::declval<F>()->buffers())>>
    : std::true_type {};

}  // namespace checkpoint_parts

/// Runs f(inputs...) without keeping its activations; backward runs it again.
///
///   x = tandem::checkpoint(net->layer1, x);
///   auto y = tandem::checkpoint([&](auto a, auto b) { return attend(a, b); }, q, kv);
///
/// `f` is a module holder, a std::shared_ptr to a torch::nn module, or a function that
/// can be copied. Each input is a tensor or a std::vector of tensors. The result is a
/// tensor, a std::vector of tensors or a std::tuple of tensors.
///
/// **As without checkpoint().** Gradients arrive in the inputs, in the parameters that
/// f uses and in tensors that f captures, with equal bits. Hooks of a parameter run
/// once per backward, so DistributedDataParallel works. Backward repeats dropout and
/// autocast. A module's buffers, such as the running statistics of batch norm, change
/// only in forward. checkpoint() can be nested. Without gradients, only runs f.
///
/// **Requirements.** Both runs must do the same. f must not change its inputs. A
/// function that is not a module must list the buffers that it changes in
/// CheckpointOptions::buffers; otherwise, backward changes them a second time. A tensor
/// or parameter that is used three or more times, inside and outside f, may get a
/// gradient with other rounding.
///
/// Backward throws Error if f returns other shapes than in forward, or if backward runs
/// twice through one result without retain_graph. Thread-safe if f is.
///
/// Source: torch.utils.checkpoint.checkpoint(use_reentrant=False).
template <typename F, typename... Inputs>
auto checkpoint(CheckpointOptions options, F f, const Inputs&... inputs) {
  namespace parts = checkpoint_parts;
  const auto call = [f](const Inputs&... arguments) mutable {
    if constexpr (parts::IsModule<F>::value) {
      return f->forward(arguments...);
    } else {
      return f(arguments...);
    }
  };
  using Call = std::remove_const_t<decltype(call)>;
  using Result = std::invoke_result_t<Call, const Inputs&...>;
  if constexpr (parts::IsModule<F>::value) {
    const auto buffers = f->buffers();
    options.buffers.insert(options.buffers.end(), buffers.begin(), buffers.end());
  }
  parts::Tensors all;
  (parts::append(all, inputs), ...);
  auto function = [call = Call(call),
                   counts = std::vector<size_t>{parts::count(inputs)...}](
                      const parts::Tensors& tensors) mutable {
    auto from = tensors.begin();
    auto count = counts.begin();
    // Braces evaluate their elements in order.
    std::tuple<Inputs...> arguments{parts::next<Inputs>(from, *count++)...};
    parts::Tensors results;
    parts::append(results, std::apply(call, std::move(arguments)));
    return results;
  };
  const auto results = parts::checkpoint(std::move(options), std::move(function), all);
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    return results[0];
  } else if constexpr (std::is_same_v<Result, parts::Tensors>) {
    return results;
  } else {
    return parts::to_tuple(results, static_cast<const Result*>(nullptr));
  }
}

/// checkpoint() with default options.
template <
    typename F, typename... Inputs,
    std::enable_if_t<!std::is_same_v<F, CheckpointOptions>, int> = 0>
auto checkpoint(F f, const Inputs&... inputs) {
  return checkpoint(CheckpointOptions(), std::move(f), inputs...);
}

}  // namespace tandem
