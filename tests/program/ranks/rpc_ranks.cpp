// Ranks of a launched group in the tests of RPC between processes:
//
//   rpc_ranks BACKEND call               every rank calls rank 0 and the next rank
//   rpc_ranks BACKEND gone RANK          that rank ends after the first call
//   rpc_ranks BACKEND late               rank 0 never answers
//   rpc_ranks BACKEND slow BOUND STEPS   run_with_slow_worker()
//
// Rank 0 prints the results.

#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "tandem/base/error.h"
#include "tandem/comm/join/join.h"
#include "tandem/comm/rpc/rpc.h"
#include "tests/parallel/slow_worker.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

void serve(Rpc& rpc, int requests) {
  for (int i = 0; i < requests; ++i) {
    auto request = rpc.next();
    auto answer = request.message;
    answer.header += " and back";
    request.reply(std::move(answer));
  }
}

void check_answer(Rpc& rpc, int peer, int rank) {
  // Larger than a packet or a ring buffer.
  const auto large = at::full({3, 1'000'000}, rank, at::kDouble);
  const auto answer = rpc.call(peer, {"there", {large, at::full({}, 7, at::kLong)}});
  TANDEM_CHECK(answer.header == "there and back", "another header");
  TANDEM_CHECK(answer.tensors.at(0).equal(large), "other doubles");
  TANDEM_CHECK(answer.tensors.at(1).item<int64_t>() == 7, "another number");
}

void call(Communicator& comm, const Words&) {
  const auto rpc = make_rpc(comm);
  const int size = comm.size();
  if (comm.rank() == 0) {
    serve(*rpc, 2 * (size - 1));
  } else {
    check_answer(*rpc, 0, comm.rank());
    check_answer(*rpc, 0, comm.rank());
  }
  comm.barrier();
  // In the other direction.
  if (comm.rank() == 0) {
    for (int peer = 1; peer < size; ++peer) {
      check_answer(*rpc, peer, 0);
    }
  } else {
    serve(*rpc, 1);
  }
  comm.barrier();
  if (comm.rank() == 0) {
    fmt::print("all called\n");
  }
}

void gone(Communicator& comm, const Words& words) {
  const int leaving = std::stoi(words.at(0));
  const auto rpc = make_rpc(comm);
  if (comm.rank() == 0) {
    serve(*rpc, comm.size() - 1);
  } else {
    rpc->call(0, {"first", {}});
  }
  comm.barrier();
  if (comm.rank() == leaving) {
    std::_Exit(0);
  }
  try {
    if (comm.rank() == 0) {
      rpc->next();
    } else if (leaving == 0) {
      rpc->call(0, {"second", {}});
    }
  } catch (const CommError& error) {
    fmt::print("rank {} lost rank {}: {}\n", comm.rank(), *error.peer(), error.what());
    std::fflush(stdout);
  }
  std::_Exit(0);
}

void late(Communicator& comm, const Words&) {
  const auto rpc = make_rpc(comm);
  try {
    if (comm.rank() == 0) {
      const auto request = rpc->next();
      rpc->next();
    } else {
      rpc->call(0, {"ask", {}});
    }
  } catch (const CommError& error) {
    fmt::print("rank {}: {}\n", comm.rank(), error.what());
    std::fflush(stdout);
  }
  std::_Exit(0);
}

void slow(Communicator& comm, const Words& words) {
  const auto result =
      run_with_slow_worker(comm, std::stoll(words.at(0)), std::stoll(words.at(1)));
  comm.check_equal("the parameters", result.sha256);
  if (comm.rank() == 0) {
    for (const int64_t staleness : result.staleness) {
      fmt::print("{} ", staleness);
    }
    fmt::print("\n");
  }
}

int run(const Words& words) {
  using Mode = std::function<void(Communicator&, const Words&)>;
  const std::map<std::string, Mode> modes = {
      {"call", &call}, {"gone", &gone}, {"late", &late}, {"slow", &slow}};
  const auto& mode = words.at(1);
  CommOptions options;
  options.backend = parse_choice<BackendKind>("backend", words.at(0));
  options.timeout_seconds = mode == "late" ? 1.5 : 60;
  const auto joined = join_run(options);
  modes.at(mode)(*joined.comm, {words.begin() + 2, words.end()});
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    return tandem::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
