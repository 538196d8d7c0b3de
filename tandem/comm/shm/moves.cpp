// Broadcast, all_gather, scatter and gather: one rank or all ranks write data, and each
// rank reads the part that it needs.

#include <algorithm>

#include "tandem/comm/reduce_arrays.h"
#include "tandem/comm/shm/collectives.h"
#include "tandem/comm/shm/operation.h"

namespace tandem {

namespace {

char* memory_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<char*>(tensor.data_ptr()) : nullptr;
}

// Collective in which a rank writes `width` parts of bytes_ bytes each. A round copies
// step_ bytes of every part (the last round fewer) to neighboring places in a chunk.
// Example with a width of 3:
//
//   chunk of round 0   | part 0, [0, step) | part 1, [0, step) | part 2, [0, step) |
//   chunk of round 1   | part 0, [step, 2 step) | part 1 ...
class Move : public ShmOperation {
 protected:
  Move(
      ShmCollectives& group, char name, int root, const at::Tensor& part, int width,
      int reduction = -1)
      : ShmOperation(group, {name, reduction, root, part.scalar_type(), part.numel()}),
        rank_(group.rank()),
        size_(group.size()),
        width_(width),
        bytes_(static_cast<int64_t>(part.nbytes())),
        step_(ShmRankBlock::kChunkBytes / width / 64 * 64) {}

  int64_t bytes_at_once() const override {
    return width_ * bytes_;
  }
  int64_t rounds() const override {
    return (bytes_ + step_ - 1) / step_;
  }

  int64_t begin(int64_t round) const {
    return round * step_;
  }
  int64_t length(int64_t round) const {
    return std::min(step_, bytes_ - begin(round));
  }

  // put() copies this round's bytes of part `index` of the whole to position `place` of
  // the payload; get() copies them back.
  void put(
      int64_t round, const char* whole, int index, char* payload, int place) const {
    copy_bytes(
        payload + place * length(round), whole + index * bytes_ + begin(round),
        static_cast<size_t>(length(round)));
  }
  void get(
      int64_t round, const char* payload, int place, char* whole, int index) const {
    copy_bytes(
        whole + index * bytes_ + begin(round), payload + place * length(round),
        static_cast<size_t>(length(round)));
  }

  int rank_;
  int size_;
  int width_;
  int64_t bytes_;
  int64_t step_;
};

class Broadcast : public Move {
 public:
  Broadcast(ShmCollectives& group, const at::Tensor& tensor, int root)
      : Move(group, 'b', root, tensor, 1), tensor_(tensor), root_(root) {}

 protected:
  void fill(int64_t round, char* payload) override {
    if (rank_ == root_) {
      put(round, memory_of(tensor_), 0, payload, 0);
    }
  }
  void take(int64_t round, const PerRank<const char>& payloads) override {
    if (rank_ != root_) {
      get(round, payloads[static_cast<size_t>(root_)], 0, memory_of(tensor_), 0);
    }
  }

 private:
  at::Tensor tensor_;
  int root_;
};

class AllGather : public Move {
 public:
  // With `root` -1 all ranks read, otherwise only the root does.
  AllGather(
      ShmCollectives& group, const at::Tensor& output, const at::Tensor& input,
      int root)
      : Move(group, root < 0 ? 'g' : 't', root, input, 1),
        output_(output),
        input_(input),
        takes_(root < 0 || root == group.rank()) {}

 protected:
  const at::Tensor* in_place() const override {
    return root() < 0 ? &output_ : nullptr;
  }
  void use_shared(const PerRank<char>& outputs) override {
    shared_ = outputs;
  }
  int64_t rounds() const override {
    return shared_.empty() ? Move::rounds() : 1;
  }

  void fill(int64_t round, char* payload) override {
    if (shared_.empty()) {
      put(round, memory_of(input_), 0, payload, 0);
    }
    for (char* output : shared_) {
      char* to = output + rank_ * bytes_;
      if (to != memory_of(input_)) {
        copy_bytes(to, memory_of(input_), static_cast<size_t>(bytes_));
      }
    }
  }
  void take(int64_t round, const PerRank<const char>& payloads) override {
    for (int other = 0; shared_.empty() && takes_ && other < size_; ++other) {
      get(round, payloads[static_cast<size_t>(other)], 0, memory_of(output_), other);
    }
  }

 private:
  at::Tensor output_;
  at::Tensor input_;
  bool takes_;
  PerRank<char> shared_;
};

class Scatter : public Move {
 public:
  Scatter(
      ShmCollectives& group, const at::Tensor& output, const at::Tensor& input,
      int root)
      : Move(group, 's', root, output, group.size()),
        output_(output),
        input_(input),
        root_(root) {}

 protected:
  void fill(int64_t round, char* payload) override {
    for (int other = 0; rank_ == root_ && other < size_; ++other) {
      put(round, memory_of(input_), other, payload, other);
    }
  }
  void take(int64_t round, const PerRank<const char>& payloads) override {
    get(round, payloads[static_cast<size_t>(root_)], rank_, memory_of(output_), 0);
  }

 private:
  at::Tensor output_;
  at::Tensor input_;
  int root_;
};

class ReduceScatter : public Move {
 public:
  ReduceScatter(
      ShmCollectives& group, const at::Tensor& output, const at::Tensor& input)
      : Move(group, 'c', -1, output, group.size(), static_cast<int>(ReduceOp::sum)),
        output_(output),
        input_(input),
        is_slice_(memory_of(input) + rank_ * bytes_ == memory_of(output)) {}

 protected:
  const at::Tensor* in_place() const override {
    return is_slice_ ? &input_ : nullptr;
  }
  void use_shared(const PerRank<char>& inputs) override {
    shared_ = inputs;
  }
  int64_t rounds() const override {
    return shared_.empty() ? Move::rounds() : 1;
  }

  void fill(int64_t round, char* payload) override {
    if (!shared_.empty()) {
      sum_shared_slices();
      return;
    }
    for (int other = 0; other < size_; ++other) {
      put(round, memory_of(input_), other, payload, other);
    }
  }
  void take(int64_t round, const PerRank<const char>& payloads) override {
    if (!shared_.empty()) {
      return;
    }
    PerRank<const char> from;
    for (const char* payload : payloads) {
      from.push_back(payload + rank_ * length(round));
    }
    char* to = memory_of(output_) + begin(round);
    const auto numel = length(round) / static_cast<int64_t>(output_.element_size());
    reduce_arrays(ReduceOp::sum, output_.scalar_type(), to, from, numel);
  }

 private:
  void sum_shared_slices() const {
    PerRank<const char> from;
    for (const char* input : shared_) {
      from.push_back(input + rank_ * bytes_);
    }
    reduce_arrays(
        ReduceOp::sum, output_.scalar_type(), memory_of(output_), from,
        output_.numel());
  }

  at::Tensor output_;
  at::Tensor input_;
  bool is_slice_;
  PerRank<char> shared_;
};

}  // namespace

WorkPtr shm_broadcast(ShmCollectives& group, const at::Tensor& tensor, int root) {
  return group.start(std::make_shared<Broadcast>(group, tensor, root));
}

WorkPtr shm_reduce_scatter(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input) {
  return group.start(std::make_shared<ReduceScatter>(group, output, input));
}

WorkPtr shm_all_gather(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input) {
  return group.start(std::make_shared<AllGather>(group, output, input, -1));
}

WorkPtr shm_scatter(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input,
    int root) {
  return group.start(std::make_shared<Scatter>(group, output, input, root));
}

WorkPtr shm_gather(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input,
    int root) {
  return group.start(std::make_shared<AllGather>(group, output, input, root));
}

}  // namespace tandem
