#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>

#include "tandem/comm/communicator.h"

namespace tandem {

class ShmCollectives;

/// One pointer per rank, in rank order.
template <typename T>
using PerRank = c10::SmallVector<T*, 8>;

/// One rank's part of a collective operation, as a sequence of rounds.
///
/// In each round, every rank may write data for the other ranks. When all ranks have
/// written their data, each rank reads the data that it needs. A small operation has
/// one round, whose data are part of the announcement (ShmAnnouncement).
class ShmOperation : public Work {
 public:
  bool test() final;
  void wait(std::chrono::milliseconds timeout) final;
  void on_end(std::function<void()> then) final;

 protected:
  /// Description of the call, which must be equal on all ranks.
  struct Call {
    // Letter that represents the name of the operation; see name_of() in
    // collectives.cpp.
    char name = ' ';
    // Value of a ReduceOp, or -1 without a reduction.
    int reduction = -1;
    int root = -1;
    at::ScalarType dtype = at::kFloat;
    int64_t numel = 0;
  };

  ShmOperation(ShmCollectives& group, const Call& call) : group_(group), call_(call) {}

  int root() const {
    return call_.root;
  }

  /// Returns the maximum number of bytes that a rank would write if the operation had
  /// only one round.
  virtual int64_t bytes_at_once() const = 0;

  /// Returns the tensor that is processed in place if the tensors of all ranks are in
  /// shared memory; null if there is no such tensor.
  virtual const at::Tensor* in_place() const {
    return nullptr;
  }

  /// Sets the addresses of all ranks' in_place() tensors. Called before the first
  /// round, only if all these tensors are in shared memory.
  virtual void use_shared(const PerRank<char>&) {}

  /// Returns the number of rounds.
  virtual int64_t rounds() const = 0;

  /// Returns whether fill() of a round may be called before take() of the previous
  /// round.
  virtual bool runs_ahead() const {
    return true;
  }

  /// Writes this rank's data for round `round` to `payload`.
  virtual void fill(int64_t round, char* payload) = 0;

  /// Reads the data that all ranks, including this rank, wrote in a round.
  virtual void take(int64_t round, const PerRank<const char>& payloads) = 0;

 private:
  friend class ShmCollectives;

  ShmCollectives& group_;
  Call call_;
  // Progress of the operation. Only ShmCollectives changes it.
  uint64_t number_ = 0;
  bool announced_ = false;
  int arrived_ = 0;
  bool started_ = false;
  int64_t filled_ = 0;
  int64_t taken_ = 0;
  bool ended_ = false;
  // Function to call at the end; may be empty.
  std::function<void()> then_;
};

// Functions that start collectives over shared memory, with the arguments of
// communicator.h.
//
// Values are reduced in rank order. A small operation sends its data in the
// announcement (ShmAnnouncement). If the tensors of all ranks are in shared memory,
// all_reduce, all_gather and a reduce_scatter into the inputs copy no data to chunks
// (ShmRankBlock):
// - all_reduce: each rank reduces its slice of all tensors and writes the result to all
//   tensors.
// - reduce_scatter: each rank reduces its slice of all tensors into its own tensor.
// - all_gather: each rank writes its part to all outputs.
//
// Otherwise, each rank with data to send copies the data to its chunks. In all_reduce,
// each rank then reduces a slice of every chunk, or the whole chunk if there are two
// ranks or the tensor is small.

[[nodiscard]] WorkPtr shm_all_reduce(
    ShmCollectives& group, const at::Tensor& tensor, ReduceOp op);
[[nodiscard]] WorkPtr shm_broadcast(
    ShmCollectives& group, const at::Tensor& tensor, int root);
[[nodiscard]] WorkPtr shm_reduce_scatter(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input);
[[nodiscard]] WorkPtr shm_all_gather(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input);
[[nodiscard]] WorkPtr shm_scatter(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input, int root);
[[nodiscard]] WorkPtr shm_gather(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input, int root);

}  // namespace tandem
