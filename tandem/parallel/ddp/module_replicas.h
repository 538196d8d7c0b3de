#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tandem/parallel/ddp/replica_threads.h"

namespace tandem {

/// Another module of the same kind, for a module that has no clone().
using MakeModule = std::function<std::shared_ptr<torch::nn::Module>()>;

/// Modules that compute with the parameters of one, each in a thread of its own.
///
/// They are clones whose parameters have the memory of the module's. Each parameter of
/// theirs leads in autograd's graph to the module's: there the replicas' gradients are
/// added up in the order of the replicas, ((g0 + g1) + g2), before one sum reaches the
/// parameter. So the bits of a gradient do not depend on which replica was faster.
class ModuleReplicas {
 public:
  /// Throws ConfigError when there is to be none, or the module can neither be cloned
  /// nor made.
  ModuleReplicas(
      std::shared_ptr<torch::nn::Module> module, int64_t count, MakeModule make);

  /// Makes them anew of what the module is now.
  void remake();

  /// Brings the first `count` in step with the module (parameters, buffers, training
  /// mode, what requires a gradient) and calls work(i) for each in its thread. Makes
  /// all of them anew first when parameters or buffers were added, removed or replaced.
  /// Throws as ReplicaThreads::run(), and ConfigError for a module that is not in main
  /// memory or while another run is on its way.
  void run(size_t count, const std::function<void(size_t)>& work);

  torch::nn::Module& operator[](size_t replica) {
    return *replicas_[replica].module;
  }

 private:
  struct Replica {
    std::shared_ptr<torch::nn::Module> module;
    // In the order of the module's own.
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> buffers;
  };

  Replica make_replica() const;
  bool is_as_made() const;
  void share_parameters(size_t count);
  void share_buffers(size_t count);
  void follow_training_mode(size_t count);

  std::shared_ptr<torch::nn::Module> module_;
  MakeModule make_;
  size_t count_;
  // What the replicas were made of.
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
  std::vector<Replica> replicas_;
  std::mutex running_;
  ReplicaThreads threads_;
};

}  // namespace tandem
