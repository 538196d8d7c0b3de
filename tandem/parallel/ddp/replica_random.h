#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace tandem {

/// The random numbers of one forward pass of several replicas.
///
/// LibTorch's operators draw from one generator per process, so threads that draw at
/// once would get numbers in the order of the moment. Here each replica has numbers of
/// its own: those of a generator with a seed that the process's generator gave, a seed
/// per replica in their order. What a replica draws so follows from torch::manual_seed,
/// the forward passes before, and the number of replicas. A pass that draws nothing
/// takes nothing from the process's generator.
///
/// It sees the operators that take a generator: dropout, bernoulli_, normal_, randn and
/// the like. One of them runs at a time, in the whole process, and meanwhile the
/// process's generator has the replica's numbers: a thread that is no replica should
/// not draw from it then.
class ReplicaRandom {
 public:
  explicit ReplicaRandom(size_t num_replicas) : num_replicas_(num_replicas) {}
  ReplicaRandom(const ReplicaRandom&) = delete;
  ReplicaRandom& operator=(const ReplicaRandom&) = delete;

  /// While it lives, what this thread draws is the replica's. Not within another.
  class Scope {
   public:
    Scope(ReplicaRandom& numbers, size_t replica);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const at::RecordFunctionGuard seen_;
    at::CallbackHandle callback_;
  };

 private:
  // All that a generator draws from.
  struct State {
    at::mt19937 engine;
    decltype(std::declval<at::CPUGeneratorImpl&>().next_float_normal_sample()) normal32;
    decltype(std::declval<at::CPUGeneratorImpl&>()
                 .next_double_normal_sample()) normal64;
  };

  static State exchange(const State& state);
  void choose_seeds();
  // Around an operator of a replica's.
  void begin(size_t replica);
  void end(size_t replica);

  friend struct DrawingThread;

  size_t num_replicas_;
  // Empty until a replica draws.
  std::vector<State> replicas_;
  // Of the process, while a replica's numbers are in its place.
  State process_;
};

}  // namespace tandem
