#include <algorithm>

#include "tandem/comm/reduce_arrays.h"
#include "tandem/comm/shm/collectives.h"
#include "tandem/comm/shm/operation.h"

namespace tandem {

namespace {

// Largest size, in bytes, of a tensor that every rank sums completely. This needs one
// transfer between cores instead of two.
constexpr int64_t kWholeBytes = 32 << 10;

// A range of bytes in the tensor or in a chunk.
struct Run {
  int64_t begin = 0;
  int64_t bytes = 0;
};

// Returns the part of `bytes` that rank `index` of `count` sums, in units of a cache
// line. The last parts may be shorter, or empty. For example, 10 cache lines are
// divided among 3 ranks as 0 0 0 0 1 1 1 1 2 2.
Run slice_of(int64_t bytes, int index, int count) {
  constexpr int64_t kLine = 64;
  const int64_t lines = (bytes + kLine - 1) / kLine;
  const int64_t part = (lines + count - 1) / count * kLine;
  const int64_t begin = std::min(bytes, index * part);
  return {begin, std::min(part, bytes - begin)};
}

class AllReduce : public ShmOperation {
 public:
  AllReduce(ShmCollectives& group, const at::Tensor& tensor, ReduceOp op)
      : ShmOperation(
            group,
            {'r', static_cast<int>(op), -1, tensor.scalar_type(), tensor.numel()}),
        tensor_(tensor),
        op_(op),
        rank_(group.rank()),
        size_(group.size()),
        memory_(static_cast<char*>(tensor.data_ptr())),
        bytes_(static_cast<int64_t>(tensor.nbytes())),
        by_slices_(size_ > 2 && bytes_ > kWholeBytes) {}

 protected:
  int64_t bytes_at_once() const override {
    return bytes_;
  }

  const at::Tensor* in_place() const override {
    return &tensor_;
  }

  void use_shared(const PerRank<char>& tensors) override {
    shared_ = tensors;
  }

  int64_t rounds() const override {
    const int64_t chunks =
        (bytes_ + ShmRankBlock::kChunkBytes - 1) / ShmRankBlock::kChunkBytes;
    return !shared_.empty() ? 1 : by_slices_ ? 2 * chunks : chunks;
  }

  bool runs_ahead() const override {
    return !by_slices_;
  }

  void fill(int64_t round, char* payload) override {
    if (!shared_.empty()) {
      sum_shared_slice();
    } else if (!by_slices_) {
      const Run run = chunk(round);
      copy_bytes(payload, memory_ + run.begin, static_cast<size_t>(run.bytes));
    } else {
      const Run run = chunk(round / 2);
      // A chunk has two rounds. In the first, each rank writes all its values and sums
      // its slice. In the second, each rank writes that sum.
      const Run part =
          round % 2 == 0 ? Run{0, run.bytes} : slice_of(run.bytes, rank_, size_);
      copy_bytes(
          payload + part.begin, memory_ + run.begin + part.begin,
          static_cast<size_t>(part.bytes));
    }
  }

  void take(int64_t round, const PerRank<const char>& payloads) override {
    if (!shared_.empty()) {
      return;
    }
    const Run run = chunk(by_slices_ ? round / 2 : round);
    if (!by_slices_) {
      sum(payloads, {0, run.bytes}, memory_ + run.begin);
    } else if (round % 2 == 0) {
      const Run part = slice_of(run.bytes, rank_, size_);
      sum(payloads, part, memory_ + run.begin + part.begin);
    } else {
      for (int other = 0; other < size_; ++other) {
        const Run part = slice_of(run.bytes, other, size_);
        if (other != rank_) {
          copy_bytes(
              memory_ + run.begin + part.begin,
              payloads[static_cast<size_t>(other)] + part.begin,
              static_cast<size_t>(part.bytes));
        }
      }
    }
  }

 private:
  Run chunk(int64_t index) const {
    const int64_t begin = index * ShmRankBlock::kChunkBytes;
    return {begin, std::min(ShmRankBlock::kChunkBytes, bytes_ - begin)};
  }

  int64_t numel(int64_t bytes) const {
    return bytes / static_cast<int64_t>(tensor_.element_size());
  }

  // Reduces `part` of all `payloads` into `to`, which still contains this rank's
  // values.
  void sum(const PerRank<const char>& payloads, const Run& part, char* to) const {
    PerRank<const char> from;
    for (int other = 0; other < size_; ++other) {
      from.push_back(
          other == rank_ ? to : payloads[static_cast<size_t>(other)] + part.begin);
    }
    reduce_arrays(op_, tensor_.scalar_type(), to, from, numel(part.bytes));
  }

  void sum_shared_slice() const {
    const Run part = slice_of(bytes_, rank_, size_);
    PerRank<char> to;
    PerRank<const char> from;
    for (char* tensor : shared_) {
      to.push_back(tensor + part.begin);
      from.push_back(tensor + part.begin);
    }
    reduce_arrays(op_, tensor_.scalar_type(), to, from, numel(part.bytes));
  }

  at::Tensor tensor_;
  ReduceOp op_;
  int rank_;
  int size_;
  char* memory_;
  int64_t bytes_;
  bool by_slices_;
  PerRank<char> shared_;
};

}  // namespace

WorkPtr shm_all_reduce(ShmCollectives& group, const at::Tensor& tensor, ReduceOp op) {
  return group.start(std::make_shared<AllReduce>(group, tensor, op));
}

}  // namespace tandem
