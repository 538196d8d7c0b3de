#pragma once

#include <c10/util/Optional.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem {

/// The tensors in a nested value, such as a vector of tuples, and its structure.
struct NestedTensors {
  std::vector<at::Tensor*> tensors;
  // Text with the lengths of vectors, the keys of maps, and 1 or 0 for an optional with
  // or without a value. It is equal for values with the same structure.
  std::string structure;
};

template <template <typename...> class Of, typename T>
inline constexpr bool is_a = false;
template <template <typename...> class Of, typename... Ts>
inline constexpr bool is_a<Of, Of<Ts...>> = true;

/// Appends the tensors in a value to `found`. The documentation of DataParallel,
/// "Inputs", lists the types of values. If `only_tensors` is true, values of other
/// types do not compile.
template <bool only_tensors, typename T>
void list_tensors([[maybe_unused]] T& value, [[maybe_unused]] NestedTensors& found) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    found.tensors.push_back(&value);
  } else if constexpr (is_a<std::tuple, T> || is_a<std::pair, T>) {
    std::apply(
        [&](auto&... parts) { (list_tensors<only_tensors>(parts, found), ...); },
        value);
  } else if constexpr (is_a<std::optional, T> || is_a<c10::optional, T>) {
    found.structure += value.has_value() ? "1," : "0,";
    if (value.has_value()) {
      list_tensors<only_tensors>(*value, found);
    }
  } else if constexpr (is_a<std::vector, T>) {
    found.structure += std::to_string(value.size()) + ",";
    for (auto&& part : value) {
      list_tensors<only_tensors>(part, found);
    }
  } else if constexpr (is_a<std::map, T>) {
    for (auto& [key, part] : value) {
      found.structure += std::string(key) + ",";
      list_tensors<only_tensors>(part, found);
    }
  } else {
    static_assert(!only_tensors, "tandem::DataParallel gathers only tensors");
  }
}

/// Returns the tensors of each of several values, in the order of the values.
template <bool only_tensors, typename T>
std::vector<NestedTensors> list_all_tensors(std::vector<T>& values) {
  std::vector<NestedTensors> found(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    list_tensors<only_tensors>(values[i], found[i]);
  }
  return found;
}

/// Divides each tensor into chunks: replica i gets chunk i. On entry, a tensor is equal
/// in all replicas. Returns the number of chunks, which may be smaller than the number
/// of replicas. Throws ConfigError if tensors have different numbers of chunks.
size_t chunk_tensors(const std::vector<NestedTensors>& replicas);

/// Concatenates each tensor over all replicas and stores the result in the tensor of
/// the first replica. Throws ConfigError if the replicas' structures differ.
void concatenate_tensors(const std::vector<NestedTensors>& replicas);

/// Base class of DataParallelModule with all parts that do not depend on the type of
/// the wrapped module.
class ReplicatedModule : public torch::nn::Module {
 public:
  ~ReplicatedModule() override;

  /// Clones the module again. Call this function after a change of members that are not
  /// parameters or buffers.
  void replicate();

  /// Returns the number of replicas.
  int64_t num_replicas() const {
    return num_replicas_;
  }

 protected:
  ReplicatedModule(std::shared_ptr<torch::nn::Module> module, int64_t num_replicas);

  /// Calls `forward` for the first `count` replicas, each in its own thread, with the
  /// replica and its index. Waits for all calls.
  void run(
      size_t count, const std::function<void(size_t, torch::nn::Module&)>& forward);

 private:
  class Replica;

  void follow_module(size_t count);

  const std::shared_ptr<torch::nn::Module> original_;
  const int64_t num_replicas_;
  // Parameters, then buffers, that the module had when it was last cloned.
  std::vector<at::Tensor> tensors_;
  // Clones of the module. Empty for a single replica, which is the module itself.
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::mutex running_;
};

/// The module that a DataParallel object contains. Its child "module" is the wrapped
/// module.
template <typename Wrapped>
class DataParallelModule : public ReplicatedModule {
 public:
  /// Wraps `module` and shares its ownership.
  DataParallelModule(torch::nn::ModuleHolder<Wrapped> module, int64_t num_replicas)
      : ReplicatedModule(module.ptr(), num_replicas),
        module_(register_module("module", module.ptr())) {}

  /// Divides the inputs among the replicas and returns the gathered outputs of the
  /// replicas, as DataParallel describes.
  template <typename... Inputs>
  auto forward(Inputs&&... inputs) {
    using Output = std::decay_t<decltype(module_->forward(std::declval<Inputs>()...))>;
    if (num_replicas() == 1) {
      return Output(module_->forward(std::forward<Inputs>(inputs)...));
    }
    using Copies = std::tuple<std::decay_t<Inputs>...>;
    std::vector<Copies> chunks(static_cast<size_t>(num_replicas()), Copies(inputs...));
    const size_t used =
        sizeof...(Inputs) > 0 ? chunk_tensors(list_all_tensors<false>(chunks)) : 1;
    std::vector<Output> outputs(used);
    run(used, [&](size_t i, torch::nn::Module& replica) {
      auto& module = dynamic_cast<Wrapped&>(replica);
      outputs[i] = std::apply(
          [&](auto&... mine) { return module.forward(std::move(mine)...); }, chunks[i]);
    });
    concatenate_tensors(list_all_tensors<true>(outputs));
    return Output(std::move(outputs[0]));
  }

  /// Returns the wrapped module.
  const std::shared_ptr<Wrapped>& module() const {
    return module_;
  }

 private:
  const std::shared_ptr<Wrapped> module_;
};

/// Type of the module for a template argument of DataParallel: `Net` itself if it is a
/// module, NetImpl if `Net` is the holder that TORCH_MODULE(Net) defines.
template <typename Net, bool = std::is_base_of<torch::nn::Module, Net>::value>
struct WrappedModule {
  using Type = Net;
};
template <typename Net>
struct WrappedModule<Net, false> {
  using Type = typename Net::ContainedType;
};

/// Divides a batch among replicas of a module, runs each replica in a thread, and
/// gathers the outputs. The counterpart of torch.nn.DataParallel for CPUs.
///
///   tandem::DataParallel<Net> model(net, 3);
///   torch::optim::Adam optimizer(model->parameters());
///   F::cross_entropy(model->forward(inputs), targets).backward();
///
/// **Module.** `net` is a module holder or std::shared_ptr, whose ownership is shared.
/// Two or more replicas need the module's clone() (torch::nn::Cloneable); a single
/// replica is the module itself. Replicas use the module's current parameters, buffers,
/// requires_grad and train() mode; call replicate() after a change of other members.
///
/// **Inputs.** Tensors [N, ...] of any dtype are divided along dimension 0 as by
/// torch.chunk(). Three replicas get 3, 3 and 1 of 7 rows. If there are 4 rows, two
/// replicas get 2 each and the third is not used. Tensors may be nested in vectors,
/// tuples, pairs, optionals and maps with string keys (std::map). Other values are
/// copied for each replica.
///
/// **Outputs.** Tensors, also nested, are concatenated along dimension 0 in the order
/// of the chunks; 0-dimensional tensors become a vector. Other types do not compile.
/// **Gradients** accumulate in the module's .grad. **Buffers** keep replica 0's
/// changes.
///
/// **Threads.** Replicas use the caller's grad mode, inference mode and autocast. They
/// divide LibTorch's intra-op threads among themselves. Not thread-safe. **Dropout**
/// uses LibTorch's generator, so its masks depend on the timing of threads; for
/// reproducible training use ranks, as in recipes/data-parallel-module.toml.
///
/// **Errors.** Throws Error with "replica 1 of 3" and, nested, the exception of the
/// first replica that threw. Throws ConfigError if the module cannot be cloned or is
/// not on the CPU. Also throws ConfigError if inputs have different numbers of chunks,
/// or outputs of replicas have different structures.
///
/// Source: torch/nn/parallel/data_parallel.py.
template <typename Net>
class DataParallel : public torch::nn::ModuleHolder<
                         DataParallelModule<typename WrappedModule<Net>::Type>> {
 public:
  using torch::nn::ModuleHolder<
      DataParallelModule<typename WrappedModule<Net>::Type>>::ModuleHolder;

  /// Calls forward(). ModuleHolder's operator() does not compile if forward() is a
  /// template.
  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    return this->get()->forward(std::forward<Inputs>(inputs)...);
  }
};

}  // namespace tandem
