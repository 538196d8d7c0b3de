#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>

#include "tandem/comm/communicator.h"

namespace tandem {

class ShmCollectives;

/// Pointers to one place per rank, in rank order.
template <typename T>
using PerRank = c10::SmallVector<T*, 8>;

/// One rank's part in one collective, as the rounds that it takes. In each round every
/// rank may put something where the others see it and, when all have, takes what it
/// needs of theirs. A small operation has one round, which travels with the
/// announcement.
class ShmOperation : public Work {
 public:
  bool test() final;
  void wait(std::chrono::milliseconds timeout) final;

 protected:
  /// What was called; it is an error unless it is equal on all ranks.
  struct Call {
    // The letter that name_of() in collectives.cpp turns into a name.
    char name = ' ';
    // A ReduceOp, or -1 where nothing is reduced.
    int reduction = -1;
    int root = -1;
    at::ScalarType dtype = at::kFloat;
    int64_t numel = 0;
  };

  ShmOperation(ShmCollectives& group, const Call& call) : group_(group), call_(call) {}

  int root() const {
    return call_.root;
  }

  /// The most bytes that a rank puts into a round if there is only one.
  virtual int64_t bytes_at_once() const = 0;

  /// The tensor that is worked on where it lies if all ranks' are in shared memory.
  virtual const at::Tensor* in_place() const {
    return nullptr;
  }

  /// Gives the memory of all ranks' in_place() tensors, which are shared. It is called
  /// before the first round, or not at all.
  virtual void use_shared(const PerRank<char>&) {}

  virtual int64_t rounds() const = 0;

  /// Whether a round may be filled before the one before it was taken.
  virtual bool runs_ahead() const {
    return true;
  }

  /// Puts this rank's part of a round into `payload`.
  virtual void fill(int64_t round, char* payload) = 0;

  /// Takes from the ranks' payloads, among which is this rank's own.
  virtual void take(int64_t round, const PerRank<const char>& payloads) = 0;

 private:
  friend class ShmCollectives;

  ShmCollectives& group_;
  Call call_;
  // How far the operation is. Only ShmCollectives changes it.
  uint64_t number_ = 0;
  bool announced_ = false;
  int arrived_ = 0;
  bool started_ = false;
  int64_t filled_ = 0;
  int64_t taken_ = 0;
  bool ended_ = false;
};

/// The collectives over shared memory; arguments as in communicator.h.
///
/// Sums are in rank order. Where all ranks' tensors are in shared memory, all_reduce
/// has each rank sum its own slice, reading all tensors, and write the sum to all of
/// them; all_gather has each rank write its part to all outputs. Otherwise each rank
/// puts one chunk after the other where the others see it. all_reduce then sums by
/// slices, or, with two ranks or a small tensor, the whole on each rank.

std::shared_ptr<ShmOperation> shm_all_reduce(
    ShmCollectives& group, const at::Tensor& tensor, ReduceOp op);
std::shared_ptr<ShmOperation> shm_broadcast(
    ShmCollectives& group, const at::Tensor& tensor, int root);
std::shared_ptr<ShmOperation> shm_reduce_scatter(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input);
std::shared_ptr<ShmOperation> shm_all_gather(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input);
std::shared_ptr<ShmOperation> shm_scatter(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input, int root);
std::shared_ptr<ShmOperation> shm_gather(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input, int root);

}  // namespace tandem
