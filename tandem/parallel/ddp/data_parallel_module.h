#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/parallel/ddp/divided_values.h"
#include "tandem/parallel/ddp/module_replicas.h"

namespace tandem {

/// What DataParallel holds: a module whose child "module" is the wrapped one.
template <typename Wrapped>
class DataParallelModule : public torch::nn::Module {
 public:
  DataParallelModule(
      torch::nn::ModuleHolder<Wrapped> module, int64_t num_replicas,
      MakeModule make = {})
      : module_(register_module("module", module.ptr())) {
    if (num_replicas != 1) {
      replicas_ =
          std::make_unique<ModuleReplicas>(module_, num_replicas, std::move(make));
    }
    num_replicas_ = num_replicas;
  }

  /// As the module's own, of inputs that are divided among the replicas.
  template <typename... Inputs>
  auto forward(Inputs&&... inputs) {
    using Output = std::decay_t<decltype(module_->forward(std::declval<Inputs>()...))>;
    if (replicas_ == nullptr) {
      return Output(module_->forward(std::forward<Inputs>(inputs)...));
    }
    ChunkCount count(num_replicas_);
    const std::tuple<DividedValue<std::decay_t<Inputs>>...> divided{
        DividedValue<std::decay_t<Inputs>>(inputs, count)...};
    const auto used = static_cast<size_t>(sizeof...(Inputs) > 0 ? count.value() : 1);
    std::vector<std::optional<Output>> outputs(used);
    replicas_->run(used, [&](size_t replica) {
      std::apply(
          [&](const auto&... parts) {
            outputs[replica] = replica_at(replica).forward(parts.of(replica)...);
          },
          divided);
    });
    std::vector<Output> of_replicas;
    for (auto& output : outputs) {
      of_replicas.push_back(std::move(*output));
    }
    return Output(Gathered<Output>::of(std::move(of_replicas)));
  }

  /// Makes the replicas anew, of what the module is now: call it when what is neither
  /// parameter, buffer nor training mode has changed.
  void replicate() {
    if (replicas_ != nullptr) {
      replicas_->remake();
    }
  }

  const std::shared_ptr<Wrapped>& module() const {
    return module_;
  }
  int64_t num_replicas() const {
    return num_replicas_;
  }

 private:
  Wrapped& replica_at(size_t number) {
    auto* replica = dynamic_cast<Wrapped*>(&(*replicas_)[number]);
    if (replica == nullptr) {
      throw ConfigError(
          "[data_parallel] a replica is another kind of module than the wrapped one; "
          "make one of its type");
    }
    return *replica;
  }

  std::shared_ptr<Wrapped> module_;
  int64_t num_replicas_ = 1;
  // Null for one: the module itself.
  std::unique_ptr<ModuleReplicas> replicas_;
};

// Net for a struct Net : torch::nn::Module, NetImpl for the Net of TORCH_MODULE(Net).
template <typename Net, bool = std::is_base_of<torch::nn::Module, Net>::value>
struct WrappedModule {
  using Type = Net;
};
template <typename Net>
struct WrappedModule<Net, false> {
  using Type = typename Net::ContainedType;
};

/// torch.nn.DataParallel on CPUs: divides each batch among replicas of a module, which
/// compute in threads of one process, and gathers what they return. The optimizer and
/// the loop see one module with one set of parameters.
///
///   Net net;
///   tandem::DataParallel<Net> model(net, 3);
///   torch::optim::Adam optimizer(model->parameters());
///   auto loss = F::cross_entropy(model->forward(inputs), targets);
///   loss.backward();
///   optimizer.step();
///
/// `net`: a module holder or a std::shared_ptr to a torch::nn::Module. It is cloned for
/// each replica (torch::nn::Cloneable), or made by a third argument, a function that
/// returns another std::shared_ptr<Net> of the same layers and settings. Throws
/// ConfigError where neither can be.
///
/// **Why clones.** Forward passes of one module object in many threads would write into
/// its buffers and members at once: batch norm's running statistics would be those of
/// all chunks in the order of the moment, where PyTorch's are the first replica's.
/// Clones have buffers and members of their own. Parameters they share: the same
/// memory, no copy. So a forward() that changes a parameter in place is not for this.
///
/// **Inputs.** Tensors, also those in vectors, tuples, pairs and optionals, are divided
/// along dimension 0 as torch.chunk() does: 7 rows on 3 replicas are 3, 3 and 1; 4 rows
/// are 2 and 2, and the third replica is left out; 0 rows are an empty chunk for each.
/// Chunks are views of the batch. Anything else is copied for each replica. Tensors
/// that make unequal numbers of chunks are an error.
///
/// **Outputs.** Tensors are concatenated along dimension 0 in the order of the chunks,
/// in vectors, tuples and pairs each for itself; a replica's 0-dimensional tensors
/// become a vector. Other types do not compile.
///
/// **Threads.** Each replica has its thread, with the caller's grad mode, inference
/// mode and autocast (without its cache). Threads within operators are shared out among
/// the replicas when this is made (replica_threads.h). Backward is the caller's: of a
/// graph on CPUs autograd computes one operator at a time, with all threads within it.
/// One forward at a time, from any thread.
///
/// **Gradients** are what the module would have of the whole batch, as far as its
/// samples do not depend on each other (batch norm's do). They are added up in the
/// order of the replicas, so two runs have equal bits.
///
/// **Random numbers.** Dropout and the like draw in replica i from a generator of its
/// own, whose seed comes from LibTorch's when a forward first draws (replica_random.h):
/// they follow from torch::manual_seed() and the number of replicas, not from which
/// thread is faster. A torch::Generator that the module keeps is shared by its clones,
/// and has no such order.
///
/// **Errors.** When replicas throw, forward throws an Error "[data_parallel] replica 1
/// of 3: ..." of the first of them, with its own exception nested inside. Buffers may
/// then have changed, as after a forward of the module that throws.
///
/// What PyTorch's has, and what is here. Rows with a + are compared with PyTorch in
/// tests/parallel/ddp/data_parallel_parity_test.cpp.
///
/// | PyTorch                 | here                                                |
/// | ----------------------- | --------------------------------------------------- |
/// | module                  | + `model->module()`; names get "module." in front   |
/// | device_ids              | + the number of replicas; with one the module       |
/// |                         | itself is called, in the caller's thread            |
/// | output_device, dim      | no: main memory, dimension 0                        |
/// | replicas                | made once, not in every forward: parameters,        |
/// |                         | buffers, requires_grad and train() are followed,    |
/// |                         | for other members call `model->replicate()`         |
/// | scatter                 | + chunks; unequal numbers of them are an error      |
/// |                         | (PyTorch leaves chunks out, silently)               |
/// | parallel_apply          | + threads                                           |
/// | gather                  | + tensors, vectors, tuples, pairs                   |
/// | buffers                 | + replica 0's stay, the others' are forgotten       |
/// | other members           | the module's own do not change; a replica's stay    |
/// |                         | its own (PyTorch: forgotten)                        |
/// | gradients               | + in the module's .grad                             |
/// | parameters that no      | .grad stays undefined, as without DataParallel      |
/// | replica uses            |                                                     |
/// | create_graph            | + of gradients too                                  |
/// | forward hooks           | no: C++ modules have none                           |
///
/// Between a forward and its backward do not switch a parameter's requires_grad.
/// Modules on other devices are an error: torch::nn::parallel::data_parallel is for
/// GPUs.
template <typename Net>
class DataParallel : public torch::nn::ModuleHolder<
                         DataParallelModule<typename WrappedModule<Net>::Type>> {
 public:
  using torch::nn::ModuleHolder<
      DataParallelModule<typename WrappedModule<Net>::Type>>::ModuleHolder;

  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    return this->get()->forward(std::forward<Inputs>(inputs)...);
  }
};

}  // namespace tandem
