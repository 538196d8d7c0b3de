#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "app/bench_flags.h"
#include "app/run_command_line.h"
#include "app/worker/bench.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/comm/join/join.h"

namespace tandem::app {

namespace {

constexpr int64_t kWarmupRounds = 5;

// Returns the time of each repeat on the slowest rank, in milliseconds. An all-reduce
// ends when the last rank has the sum. Collective.
std::vector<double> time_all_reduce(
    Communicator& comm, at::Tensor buffer, int64_t repeats) {
  auto times = at::empty({repeats}, at::kDouble);
  for (int64_t i = -kWarmupRounds; i < repeats; ++i) {
    buffer.fill_(1.0);
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    comm.all_reduce(buffer)->wait();
    const double ms = milliseconds_since(start);
    if (i >= 0) {
      times.data_ptr<double>()[i] = ms;
    }
  }
  comm.all_reduce(times, ReduceOp::max)->wait();
  const double* values = times.data_ptr<double>();
  return {values, values + repeats};
}

// `memory`: "shared" or "private" for a backend with shared memory, otherwise "".
std::string describe(
    const Communicator& comm, const char* memory, int64_t bytes, const Spread& spread,
    bool as_json) {
  if (!as_json) {
    return fmt::format(
        "{:<8} {} {:>12} bytes {:12.5f} ms (p10 {:.5f}, p90 {:.5f}){}{}\n",
        comm.backend(), counted(comm.size(), "rank"), bytes, spread.median, spread.p10,
        spread.p90, *memory == '\0' ? "" : ", memory ", memory);
  }
  nlohmann::ordered_json json;
  json["backend"] = comm.backend();
  if (*memory != '\0') {
    json["memory"] = memory;
  }
  json["bytes"] = bytes;
  add_spread(json, "ms", spread);
  json["nproc"] = comm.size();
  return json.dump();
}

// Binds a rank to one core if there are enough cores, as mpirun does. If ranks were not
// bound, the scheduler could keep two ranks on one core and distort the result.
void keep_to_core(int rank, int ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
      CPU_COUNT(&allowed) < ranks) {
    return;
  }
  int cpu = -1;
  for (int seen = -1; seen < rank; ++cpu) {
    seen += CPU_ISSET(cpu + 1, &allowed) ? 1 : 0;
  }
  CPU_ZERO(&allowed);
  CPU_SET(cpu, &allowed);
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

// Measures on one rank. Rank 0 writes or prints the results.
void measure(const BenchAllReduceOptions& options, Communicator& comm) {
  keep_to_core(comm.rank(), comm.size());
  std::vector<std::string> results;
  const auto time = [&](const char* memory, const at::Tensor& buffer) {
    const auto times = time_all_reduce(comm, buffer, options.repeats);
    const auto bytes = static_cast<int64_t>(buffer.nbytes());
    results.push_back(describe(comm, memory, bytes, spread_of(times), options.json));
  };
  for (const int64_t bytes : options.bytes) {
    // First measures a buffer of make_buffer(), in which training keeps gradients. If
    // ranks share memory, also measures private memory.
    const bool shares = comm.shares_memory();
    time(shares ? "shared" : "", comm.make_buffer(bytes / 4, at::kFloat));
    if (shares) {
      time("private", at::empty({bytes / 4}, at::kFloat));
    }
  }
  if (comm.rank() != 0) {
    return;
  }
  const std::string text = join(results, options.json ? ", " : "");
  if (!options.result_file.empty()) {
    replace_file(options.result_file, text);
  } else if (options.json) {
    fmt::print("{{\"results\": [{}]}}\n", text);
  } else {
    fmt::print("{}", text);
  }
}

}  // namespace

int bench_allreduce(const Arguments& arguments) {
  return run_as_rank([&] {
    const auto options = parse_bench_allreduce(arguments);
    if (options.backends.size() != 1) {
      throw ConfigError(
          "[bench] ranks of another launcher can form only one group; name one backend "
          "with --backends");
    }
    const BackendKind backend = options.backends.front();
    if (backend == BackendKind::thread) {
      at::set_num_threads(std::max(1, usable_cpus() / options.nproc));
      run_ranks(options.nproc, [&](Communicator& comm) { measure(options, comm); });
      return;
    }
    CommOptions joining;
    joining.backend = backend;
    const JoinedRun run = join_run(joining);
    measure(options, *run.comm);
  });
}

}  // namespace tandem::app
