#pragma once

#include <ATen/ops/empty.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/communicator.h"

namespace tandem {

/// Returns element `index` of the tensor that `rank` contributes to operation `number`.
/// Sums over ranks are exact in float32.
inline float value(int64_t number, int rank, int64_t index) {
  return static_cast<float>(number % 101 * 1000 + rank * 100 + index % 97);
}

inline float sum_of_values(int64_t number, int size, int64_t index) {
  const float of_ranks =
      50.0F * static_cast<float>(size) * static_cast<float>(size - 1);
  return static_cast<float>(size) * value(number, 0, index) + of_ranks;
}

/// Sets element i of `tensor` to value_at(i). The loop is in this file because the
/// thread sanitizer does not check loops in LibTorch.
template <typename Value>
void fill(const at::Tensor& tensor, const Value& value_at) {
  auto* numbers = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    numbers[i] = value_at(i);
  }
}

template <typename Value>
void expect(const std::string& what, const at::Tensor& tensor, const Value& value_at) {
  const auto* numbers = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (numbers[i] != value_at(i)) {
      throw std::runtime_error(
          what + ": element " + std::to_string(i) + " of " +
          std::to_string(tensor.numel()) + " is " + std::to_string(numbers[i]) +
          ", not " + std::to_string(value_at(i)));
    }
  }
}

/// Runs random operations of all kinds on one rank. All ranks start the operations in
/// the same order, but wait for them in different orders. Throws if a result is not
/// exact.
class Player {
 public:
  /// All ranks pass the same `seed` and the same `board`. `board` has an element for
  /// each rank, and only barriers synchronize access to it.
  Player(Communicator& world, uint64_t seed, std::vector<int64_t>& board)
      : world_(world),
        plan_(seed),
        own_(seed * 64 + static_cast<uint64_t>(world.rank()) + 1),
        board_(board),
        arena_(world.make_buffer(kArenaNumel, at::kFloat)) {}

  void play(int num_operations) {
    for (number_ = 0; number_ < num_operations; ++number_) {
      if (number_ % 50 == 0) {
        end_all();
        part_ = world_.split(world_.rank() % static_cast<int>(1 + draw(plan_, 3)));
        // Maximum numbers of operations in flight: one, several, and more than a rank
        // can announce at the same time.
        constexpr size_t kLimits[] = {1, 6, 40};
        limit_ = kLimits[draw(plan_, 3)];
      }
      start_one();
      while (flights_.size() >= limit_) {
        end_one();
      }
    }
    end_all();
    part_.reset();
  }

 private:
  // An operation in flight, this rank's tensor in it, and a function that checks the
  // result.
  struct Flight {
    WorkPtr work;
    at::Tensor given;
    std::function<void()> check;
  };

  static constexpr int64_t kArenaNumel = 1'000'000;

  static uint64_t draw(std::mt19937_64& from, int64_t choices) {
    return from() % static_cast<uint64_t>(choices);
  }

  void start_one() {
    Communicator& comm = draw(plan_, 3) == 0 ? *part_ : world_;
    // Numbers of elements. They include numbers just above the sizes of an
    // announcement's payload, of a chunk, and of all chunks of a rank.
    constexpr int64_t kCounts[] = {1,     5,      700,    2054,   2055,
                                   9'000, 33'000, 70'001, 290'007};
    // Larger counts have a lower probability.
    const uint64_t largest = 1 + draw(plan_, 9);
    const int64_t count = kCounts[draw(plan_, static_cast<int64_t>(largest))];
    const int root = static_cast<int>(draw(plan_, comm.size()));
    all_share_ = draw(plan_, 2) == 0;
    switch (draw(plan_, 8)) {
      case 0:
        return broadcast(comm, count, root);
      case 1:
        return reduce_scatter(comm, 1 + count / comm.size());
      case 2:
        return all_gather(comm, 1 + count / comm.size());
      case 3:
        return scatter(comm, 1 + count / comm.size(), root);
      case 4:
        return gather(comm, 1 + count / comm.size(), root);
      case 5:
        return exchange(comm, count);
      case 6:
        return draw(plan_, 4) == 0 ? meet() : all_reduce(comm, 1);
      default:
        return all_reduce(comm, count);
    }
  }

  void all_reduce(Communicator& comm, int64_t count) {
    const auto tensor = brought(comm.rank(), count);
    add(comm.all_reduce(tensor), tensor, [=, number = number_, size = comm.size()] {
      expect("all_reduce", tensor, [&](int64_t i) {
        return sum_of_values(number, size, i);
      });
    });
  }

  void broadcast(Communicator& comm, int64_t count, int root) {
    const auto tensor = brought(comm.rank(), count);
    add(comm.broadcast(tensor, root), tensor, [=, number = number_] {
      expect("broadcast", tensor, [&](int64_t i) { return value(number, root, i); });
    });
  }

  void reduce_scatter(Communicator& comm, int64_t count) {
    const auto input = brought(comm.rank(), count * comm.size());
    const auto output = place(count);
    const auto first = comm.rank() * count;
    add(comm.reduce_scatter(output, input), input,
        [=, number = number_, size = comm.size()] {
          expect("reduce_scatter", output, [&](int64_t i) {
            return sum_of_values(number, size, first + i);
          });
        });
  }

  void all_gather(Communicator& comm, int64_t count) {
    const auto output = place(count * comm.size());
    const auto mine = output.narrow(0, comm.rank() * count, count);
    const auto input = draw(own_, 2) == 0 ? mine : place(count);
    fill(input, [&](int64_t i) { return value(number_, comm.rank(), i); });
    add(comm.all_gather(output, input), input,
        [=, number = number_] { expect_all("all_gather", output, count, number); });
  }

  void scatter(Communicator& comm, int64_t count, int root) {
    const bool gives = comm.rank() == root;
    const auto input = gives ? brought(root, count * comm.size()) : at::Tensor();
    const auto output = place(count);
    const auto first = comm.rank() * count;
    add(comm.scatter(output, input, root), input, [=, number = number_] {
      expect(
          "scatter", output, [&](int64_t i) { return value(number, root, first + i); });
    });
  }

  void gather(Communicator& comm, int64_t count, int root) {
    const bool takes = comm.rank() == root;
    const auto input = brought(comm.rank(), count);
    const auto output = takes ? place(count * comm.size()) : at::Tensor();
    add(comm.gather(output, input, root), input, [=, number = number_] {
      if (takes) {
        expect_all("gather", output, count, number);
      }
    });
  }

  // Sends a message to a rank and receives a message from another rank.
  void exchange(Communicator& comm, int64_t count) {
    const int size = comm.size();
    const int tag = static_cast<int>(draw(plan_, 3));
    const int distance = 1 + static_cast<int>(draw(plan_, std::max(1, size - 1)));
    if (size == 1) {
      return;
    }
    const int from = (comm.rank() + size - distance) % size;
    const auto sent = brought(comm.rank(), count);
    const auto got = place(count);
    add(comm.send(sent, (comm.rank() + distance) % size, tag), sent, [] {});
    add(comm.recv(got, from, tag), got, [=, number = number_] {
      expect("recv", got, [&](int64_t i) { return value(number, from, i); });
    });
  }

  void meet() {
    board_[static_cast<size_t>(world_.rank())] = number_;
    world_.barrier();
    for (const int64_t number : board_) {
      TANDEM_CHECK(number == number_, "a rank had not come to the barrier");
    }
    world_.barrier();
  }

  // Expects that `tensor` has `count` values of each rank, in rank order.
  static void expect_all(
      const std::string& what, const at::Tensor& tensor, int64_t count,
      int64_t number) {
    expect(what, tensor, [&](int64_t i) {
      return value(number, static_cast<int>(i / count), i % count);
    });
  }

  at::Tensor brought(int rank, int64_t count) {
    auto tensor = place(count);
    fill(tensor, [&](int64_t i) { return value(number_, rank, i); });
    return tensor;
  }

  // Returns a tensor in shared memory or in private memory. The choice is the same on
  // all ranks, or random on each rank.
  at::Tensor place(int64_t count) {
    const bool share = all_share_ || draw(own_, 2) == 0;
    at::Tensor tensor = share ? in_arena(count) : at::empty({count});
    fill(tensor, [](int64_t) { return -1.0F; });
    return tensor;
  }

  at::Tensor in_arena(int64_t count) {
    if (used_ + count > kArenaNumel) {
      end_all();
      used_ = 0;
    }
    used_ += count;
    return arena_.narrow(0, used_ - count, count);
  }

  void add(WorkPtr work, const at::Tensor& given, std::function<void()> check) {
    flights_.push_back({std::move(work), given, std::move(check)});
  }

  void end_one() {
    const auto one =
        flights_.begin() +
        static_cast<std::ptrdiff_t>(draw(own_, static_cast<int64_t>(flights_.size())));
    while (draw(own_, 4) == 0 && !one->work->test()) {
      sched_yield();
    }
    one->work->wait();
    one->check();
    flights_.erase(one);
  }

  void end_all() {
    while (!flights_.empty()) {
      end_one();
    }
  }

  Communicator& world_;
  std::unique_ptr<Communicator> part_;
  std::mt19937_64 plan_;
  std::mt19937_64 own_;
  std::vector<int64_t>& board_;
  at::Tensor arena_;
  int64_t used_ = 0;
  int64_t number_ = 0;
  size_t limit_ = 1;
  bool all_share_ = false;
  std::vector<Flight> flights_;
};

}  // namespace tandem
