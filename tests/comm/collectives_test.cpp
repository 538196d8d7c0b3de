// Operations of every backend, with 1 to 4 ranks.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/scratch.h"

namespace tandem::collectives_test {

constexpr int64_t kCount = 5;

// Each element of each rank is a different number, small enough for bfloat16.
at::Tensor numbers(int rank, at::ScalarType dtype = at::kFloat) {
  return (at::arange(kCount) + 10 * rank).to(dtype);
}

// Returns the numbers of all ranks, in rank order.
at::Tensor all_numbers(int size) {
  auto all = at::empty({size * kCount}, at::kFloat);
  for (int rank = 0; rank < size; ++rank) {
    all.narrow(0, rank * kCount, kCount).copy_(numbers(rank));
  }
  return all;
}

int64_t times_slots(int size) {
  return size * kCount;
}

class Collectives : public testing::TestWithParam<const char*> {
 protected:
  // Runs `body` with every number of ranks and passes its results to `check`.
  template <typename Body, typename Check>
  void at_each_size(const Body& body, const Check& check) {
    for (int size = 1; size <= 4; ++size) {
      SCOPED_TRACE("size " + std::to_string(size));
      const auto results = on_each_rank(GetParam(), size, body);
      const bool mpi = GetParam() == std::string("mpi");
      const int first = mpi && is_mpi_rank() ? read_rank_env()->rank : 0;
      for (size_t i = 0; i < results.size(); ++i) {
        const int rank = first + static_cast<int>(i);
        SCOPED_TRACE("rank " + std::to_string(rank));
        check(size, rank, results[i]);
      }
    }
  }
};

TEST_P(Collectives, AllReduceSumsEachElementInEveryDtype) {
  const std::vector<at::ScalarType> dtypes = {
      at::kFloat, at::kDouble, at::kLong, at::kInt, at::kBFloat16};
  at_each_size(
      [&](Communicator& comm) {
        std::vector<at::Tensor> sums;
        for (const auto dtype : dtypes) {
          sums.push_back(numbers(comm.rank(), dtype));
          comm.all_reduce(sums.back())->wait();
        }
        return sums;
      },
      [&](int size, int, const std::vector<at::Tensor>& sums) {
        const auto expected = at::arange(kCount) * size + 5 * size * (size - 1);
        for (size_t i = 0; i < dtypes.size(); ++i) {
          EXPECT_EQ(sums[i].scalar_type(), dtypes[i]);
          EXPECT_TRUE(sums[i].equal(expected.to(dtypes[i]))) << dtypes[i];
        }
      });
}

TEST_P(Collectives, AllReduceComputesMinimumAndMaximum) {
  // A different rank has the extreme value of each element.
  const auto values = [](int rank) {
    return (at::arange(kCount) * 7 + 4 * rank).remainder(11).to(at::kDouble);
  };
  at_each_size(
      [&](Communicator& comm) {
        std::vector<at::Tensor> found = {values(comm.rank()), values(comm.rank())};
        comm.all_reduce(found[0], ReduceOp::min)->wait();
        comm.all_reduce(found[1], ReduceOp::max)->wait();
        return found;
      },
      [&](int size, int, const std::vector<at::Tensor>& found) {
        for (int64_t i = 0; i < kCount; ++i) {
          std::vector<double> column;
          for (int rank = 0; rank < size; ++rank) {
            column.push_back(values(rank)[i].item<double>());
          }
          const auto [least, most] = std::minmax_element(column.begin(), column.end());
          EXPECT_EQ(found[0][i].item<double>(), *least) << i;
          EXPECT_EQ(found[1][i].item<double>(), *most) << i;
        }
      });
}

TEST_P(Collectives, BroadcastCopiesTheRootsTensorInEveryDtype) {
  const std::vector<at::ScalarType> dtypes = {
      at::kFloat, at::kDouble, at::kLong, at::kBFloat16, at::kByte};
  at_each_size(
      [&](Communicator& comm) {
        std::vector<at::Tensor> got;
        for (int root = 0; root < comm.size(); ++root) {
          for (const auto dtype : dtypes) {
            got.push_back(numbers(comm.rank(), dtype));
            comm.broadcast(got.back(), root)->wait();
          }
          got.push_back(at::arange(kCount).eq(comm.rank()));
          comm.broadcast(got.back(), root)->wait();
        }
        return got;
      },
      [&](int size, int, const std::vector<at::Tensor>& got) {
        auto next = got.begin();
        for (int root = 0; root < size; ++root) {
          for (const auto dtype : dtypes) {
            EXPECT_TRUE((next++)->equal(numbers(root, dtype))) << root << " " << dtype;
          }
          EXPECT_TRUE((next++)->equal(at::arange(kCount).eq(root))) << root << " bool";
        }
      });
}

TEST_P(Collectives, ReduceScatterReturnsSlicesOfTheSum) {
  at_each_size(
      [](Communicator& comm) {
        // Two-dimensional: only the order in memory counts.
        auto input = (at::arange(times_slots(comm.size())) + 100 * comm.rank())
                         .to(at::kDouble)
                         .view({kCount, comm.size()});
        auto output = at::full({kCount}, -1.0, at::kDouble);
        comm.reduce_scatter(output, input)->wait();
        TANDEM_CHECK(input[0][0].item<double>() == 100 * comm.rank(), "input changed");
        return output;
      },
      [](int size, int rank, const at::Tensor& output) {
        const auto sum = at::arange(times_slots(size)) * size + 50 * size * (size - 1);
        EXPECT_TRUE(output.equal(sum.narrow(0, rank * kCount, kCount).to(at::kDouble)));
      });
}

TEST_P(Collectives, AllGatherReturnsInputsInRankOrder) {
  at_each_size(
      [](Communicator& comm) {
        const auto separate = at::full({comm.size(), 1, kCount}, -1.0);
        comm.all_gather(separate, numbers(comm.rank()))->wait();
        const auto in_place = at::full({times_slots(comm.size())}, -1.0);
        const auto mine = in_place.narrow(0, comm.rank() * kCount, kCount);
        mine.copy_(numbers(comm.rank()));
        comm.all_gather(in_place, mine)->wait();
        return std::vector<at::Tensor>{separate, in_place};
      },
      [](int size, int, const std::vector<at::Tensor>& outputs) {
        for (const auto& output : outputs) {
          EXPECT_TRUE(output.view(-1).equal(all_numbers(size)));
        }
      });
}

TEST_P(Collectives, TheRootMayScatterAndGatherInPlace) {
  at_each_size(
      [](Communicator& comm) {
        const int root = comm.size() - 1;
        const bool is_root = comm.rank() == root;
        const auto whole = is_root ? all_numbers(comm.size()) : at::Tensor();
        const auto mine =
            is_root ? whole.narrow(0, root * kCount, kCount) : at::full({kCount}, -1.0);
        comm.scatter(mine, whole, root)->wait();
        mine.add_(comm.rank());
        comm.gather(whole, mine, root)->wait();
        return std::vector<at::Tensor>{mine, whole};
      },
      [](int size, int rank, const std::vector<at::Tensor>& got) {
        EXPECT_TRUE(got[0].equal(numbers(rank) + rank));
        for (int other = 0; got[1].defined() && other < size; ++other) {
          EXPECT_TRUE(
              got[1].narrow(0, other * kCount, kCount).equal(numbers(other) + other));
        }
      });
}

TEST_P(Collectives, ScatterReturnsSlicesOfTheRootsInput) {
  at_each_size(
      [](Communicator& comm) {
        std::vector<at::Tensor> got;
        for (int root = 0; root < comm.size(); ++root) {
          at::Tensor input;
          if (comm.rank() == root) {
            input = all_numbers(comm.size()) + 100 * root;
          }
          got.push_back(at::full({kCount}, -1.0));
          comm.scatter(got.back(), input, root)->wait();
        }
        return got;
      },
      [](int size, int rank, const std::vector<at::Tensor>& got) {
        for (int root = 0; root < size; ++root) {
          EXPECT_TRUE(got[static_cast<size_t>(root)].equal(numbers(rank) + 100 * root));
        }
      });
}

TEST_P(Collectives, GatherReturnsInputsInRankOrderOnTheRoot) {
  at_each_size(
      [](Communicator& comm) {
        std::vector<at::Tensor> got;
        for (int root = 0; root < comm.size(); ++root) {
          at::Tensor output;
          if (comm.rank() == root) {
            output = at::full({comm.size(), kCount}, -1.0);
          }
          comm.gather(output, numbers(comm.rank()) + 100 * root, root)->wait();
          got.push_back(output);
        }
        return got;
      },
      [](int size, int rank, const std::vector<at::Tensor>& got) {
        for (int root = 0; root < size; ++root) {
          const auto& output = got[static_cast<size_t>(root)];
          ASSERT_EQ(output.defined(), rank == root);
          if (rank == root) {
            EXPECT_TRUE(output.view(-1).equal(all_numbers(size) + 100 * root));
          }
        }
      });
}

// NCCL has no tags.
class TaggedMessages : public Collectives {};

TEST_P(TaggedMessages, MessagesArriveInOrderPerTag) {
  at_each_size(
      [](Communicator& comm) {
        const int size = comm.size();
        const int to = (comm.rank() + 1) % size;
        const int from = (comm.rank() + size - 1) % size;
        std::vector<at::Tensor> got(3);
        if (size == 1) {
          return got;
        }
        std::vector<at::Tensor> sent;
        for (int message = 0; message < 3; ++message) {
          sent.push_back(numbers(comm.rank()) + 100 * message);
        }
        std::vector<WorkPtr> works = {
            comm.send(sent[0], to, 5), comm.send(sent[1], to, 5),
            comm.send(sent[2], to, 9)};
        // The other tag first: it must not receive the earlier message.
        for (const auto& [message, tag] : {std::pair(2, 9), {0, 5}, {1, 5}}) {
          auto& tensor = got[static_cast<size_t>(message)];
          tensor = at::full({kCount}, -1.0);
          comm.recv(tensor, from, tag)->wait();
        }
        for (const auto& work : works) {
          work->wait();
        }
        return got;
      },
      [](int size, int rank, const std::vector<at::Tensor>& got) {
        for (int message = 0; size > 1 && message < 3; ++message) {
          EXPECT_TRUE(got[static_cast<size_t>(message)].equal(
              numbers((rank + size - 1) % size) + 100 * message))
              << message;
        }
      });
}

TEST_P(Collectives, SplitGroupsWorkInParallelWithTheirParent) {
  struct Seen {
    int rank = -1;
    int size = -1;
    double in_half = 0;
    double in_all = 0;
    double in_quarter = 0;
  };
  const auto sum = [](Communicator& comm, double value) {
    auto tensor = at::full({1}, value, at::kDouble);
    comm.all_reduce(tensor)->wait();
    return tensor.item<double>();
  };
  at_each_size(
      [&](Communicator& comm) {
        const double bit = 1 << comm.rank();
        const auto half = comm.split(comm.rank() % 2);
        Seen seen{half->rank(), half->size(), sum(*half, bit), sum(comm, bit), 0};
        seen.in_quarter = sum(*half->split(7), bit);  // the same ranks again
        return seen;
      },
      [](int size, int rank, const Seen& seen) {
        double half = 0;
        for (int other = rank % 2; other < size; other += 2) {
          half += 1 << other;
        }
        EXPECT_EQ(seen.rank, rank / 2);
        EXPECT_EQ(seen.size, (size - rank % 2 + 1) / 2);
        EXPECT_EQ(seen.in_half, half);
        EXPECT_EQ(seen.in_all, (1 << size) - 1);
        EXPECT_EQ(seen.in_quarter, half);
      });
}

TEST_P(Collectives, BarrierReturnsAfterAllRanksHaveCalledIt) {
  // Ranks may be processes: each creates a file when it arrives.
  const Scratch scratch;
  const auto directory = get_env("TANDEM_TEST_DIRECTORY").value_or(scratch.path());
  at_each_size(
      [&](Communicator& comm) {
        const auto mine = directory + "/" + std::to_string(comm.size());
        make_directories(mine);
        // The last rank is late.
        std::this_thread::sleep_for(std::chrono::milliseconds(10 * comm.rank()));
        replace_file(mine + "/" + std::to_string(comm.rank()), "came");
        comm.barrier();
        const auto seen = list_directory(mine);
        comm.barrier();
        return static_cast<int>(seen.size());
      },
      [](int size, int, int seen) { EXPECT_EQ(seen, size); });
}

TEST_P(Collectives, RanksMayWaitInDifferentOrders) {
  at_each_size(
      [](Communicator& comm) {
        const auto sum = at::full({100'000}, 1.0);
        const auto text = at::full({kCount}, static_cast<double>(comm.rank()));
        const auto reduced = comm.all_reduce(sum);
        if (comm.rank() % 2 == 1) {
          reduced->wait();
        }
        comm.broadcast(text, 1 % comm.size())->wait();
        reduced->wait();
        return std::vector<at::Tensor>{sum, text};
      },
      [](int size, int, const std::vector<at::Tensor>& got) {
        EXPECT_TRUE(got[0].eq(size).all().item<bool>());
        EXPECT_TRUE(got[1].eq(1 % size).all().item<bool>());
      });
}

TEST_P(Collectives, SeveralOperationsMayBeInFlight) {
  at_each_size(
      [](Communicator& comm) {
        std::vector<at::Tensor> tensors;
        std::vector<WorkPtr> works;
        for (int i = 0; i < 8; ++i) {
          tensors.push_back(numbers(comm.rank()) * (i + 1));
          works.push_back(comm.all_reduce(tensors.back()));
        }
        for (auto work = works.rbegin(); work != works.rend(); ++work) {
          (*work)->wait();
          TANDEM_CHECK((*work)->test(), "not ended after wait()");
        }
        return tensors;
      },
      [](int size, int, const std::vector<at::Tensor>& tensors) {
        const auto sum =
            (at::arange(kCount) * size + 5 * size * (size - 1)).to(at::kFloat);
        for (int i = 0; i < 8; ++i) {
          EXPECT_TRUE(tensors[static_cast<size_t>(i)].equal(sum * (i + 1))) << i;
        }
      });
}

INSTANTIATE_TEST_SUITE_P(
    Backends, TaggedMessages, testing::ValuesIn(all_backends()),
    [](const auto& backend) { return std::string(backend.param); });

INSTANTIATE_TEST_SUITE_P(
    Backends, Collectives, testing::ValuesIn(all_backends()),
    [](const auto& backend) { return std::string(backend.param); });

}  // namespace tandem::collectives_test
