#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/core/step_sums.h"
#include "tandem/graph/call_listener.h"
#include "tandem/parallel/reduce/grad_reducer.h"

namespace tandem {

/// The trainable parameters of ranks of which each keeps only its part of every bucket
/// (Bucket::part()). Buckets are gathered when operators use them, and released
/// afterwards. Frozen parameters are complete on every rank.
///
/// The unit of gathering is the bucket. In the first pass of a kind, a rank learns
/// which buckets the operators use, in order. From the second pass on, it gathers the
/// buckets of the next use while the operators of the current use compute. At most the
/// buckets of two uses are complete at a time.
///
/// All methods are collective. All ranks must use the parameters in the same order in
/// every pass. Not thread-safe.
///
/// Source: ZeRO stage 3 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
/// Training Trillion Parameter Models", SC 2020), and Zhao et al., "PyTorch FSDP:
/// Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023, whose units are
/// modules.
class ShardedParameters : private CallListener {
 public:
  /// Both objects must outlive this object. Throws ConfigError if a bucket does not
  /// divide evenly among the ranks.
  ShardedParameters(Communicator& comm, Arena& parameters);

  /// Gives each rank its part of rank 0's trainable parameters, one bucket after
  /// another, and the frozen parameters. `all` has the ranks of all shard groups.
  void distribute(Communicator& all);

  /// Releases all parts of other ranks. Call it when every rank has all parameters.
  void release();

  /// Makes all parameters complete on every rank, until release() or the next pass.
  void gather();
  /// Returns whether gather() made all parameters complete.
  bool are_complete() const {
    return are_complete_;
  }

  /// From now on, an operator of the calling thread that uses an incomplete parameter
  /// outside of passes throws ConfigError. The same thread must make the passes, and
  /// destroy this object.
  void watch_thread() {
    outside_.emplace(static_cast<CallListener&>(*this));
  }

  /// Kinds of passes. Passes of one kind use the parameters in the same order.
  enum class Pass {
    // Forward and backward of a micro-batch.
    training,
    // Forward of an evaluation.
    evaluation
  };

  /// Returns body(). Its operators find complete parameters. `reducer` reduces the
  /// gradients of this pass; null if they are only accumulated.
  ///
  /// Throws ConfigError if the operators use other parameters than in the first pass of
  /// this kind, or change a parameter.
  StepSums pass(
      Pass kind, const GradReducer* reducer, const std::function<StepSums()>& body);

  /// Notes, within the body of a pass, that its forward has ended.
  void end_forward();

  /// Makes the collective calls of a pass on a rank that has no batch for it.
  ///
  /// Throws ConfigError if this rank has not yet learned the calls.
  void pass_without_batch(Pass kind, GradReducer* reducer);

 private:
  // Buckets that operators use together.
  struct Use {
    // In ascending order.
    std::vector<size_t> buckets;
    // Number of reductions that had been started before this use, in the last pass that
    // reduced gradients.
    size_t launched = 0;
  };
  struct Uses {
    std::vector<Use> list;
    // Number of uses in the forward pass.
    size_t forward = 0;
    bool learned = false;
  };

  void call_operator(
      const c10::OperatorHandle& op, c10::DispatchKeySet keys,
      std::vector<c10::IValue>& stack) override;
  void note(const at::Tensor& tensor, const c10::OperatorHandle& op);
  void check_own(
      size_t bucket, int64_t begin, int64_t last, const std::string& op) const;
  void use(std::vector<size_t> buckets, const std::string& op);

  void begin(Uses& uses);
  void arrange(const Uses& uses, size_t index);
  void start_gathering(const Use& use);
  void finish_gathering(const Use& use);
  void release_except(const std::vector<size_t>& kept);
  void end();

  const std::vector<Bucket>& buckets() const {
    return parameters_.layout().buckets();
  }
  at::Tensor whole(size_t bucket) const {
    return parameters_.slice(buckets()[bucket].range);
  }
  at::Tensor mine(size_t bucket) const {
    return parameters_.slice(buckets()[bucket].part(comm_.rank(), comm_.size()));
  }

  Communicator& comm_;
  Arena& parameters_;
  // The segment of each storage with buckets.
  std::map<const c10::StorageImpl*, int64_t> segments_;
  Uses training_;
  Uses evaluation_;
  // The current pass: its uses, the number of uses so far, and its reducer.
  Uses* current_ = nullptr;
  size_t used_ = 0;
  const GradReducer* reducer_ = nullptr;
  // Buckets that are complete or being gathered.
  std::map<size_t, WorkPtr> gathered_;
  // Buckets of the current call.
  std::vector<size_t> of_call_;
  bool are_complete_ = true;
  std::optional<Scope> outside_;
};

}  // namespace tandem
