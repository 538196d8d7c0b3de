#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "app/bench_flags.h"
#include "app/bench_spread.h"
#include "app/run_as_rank.h"
#include "app/worker_bench.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/comm/join.h"
#include "tandem/comm/thread.h"

namespace tandem::app {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmup = 5;

// Milliseconds of each repeat, the slowest rank's: an all-reduce is done when the
// last rank has the sum. Collective.
std::vector<double> time_all_reduce(
    Communicator& comm, int64_t bytes, int64_t repeats) {
  auto buffer = at::full({bytes / 4}, 1.0, at::kFloat);
  auto times = at::empty({repeats}, at::kDouble);
  for (int64_t i = -kWarmup; i < repeats; ++i) {
    buffer.fill_(1.0);
    comm.barrier();
    const auto start = Clock::now();
    comm.all_reduce(buffer)->wait();
    const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start;
    if (i >= 0) {
      times.data_ptr<double>()[i] = elapsed.count();
    }
  }
  comm.all_reduce(times, ReduceOp::max)->wait();
  const double* values = times.data_ptr<double>();
  return {values, values + repeats};
}

std::string describe(
    const Communicator& comm, int64_t bytes, const Spread& spread, bool as_json) {
  if (!as_json) {
    return fmt::format(
        "{:<8} {} ranks {:>12} bytes {:10.3f} ms (p10 {:.3f}, p90 {:.3f})\n",
        comm.backend(), comm.size(), bytes, spread.median, spread.p10, spread.p90);
  }
  nlohmann::ordered_json json;
  json["backend"] = comm.backend();
  json["bytes"] = bytes;
  json["ms"] = spread.median;
  json["p10"] = spread.p10;
  json["p90"] = spread.p90;
  json["nproc"] = comm.size();
  return json.dump();
}

// What one rank does; rank 0 leaves or prints the results.
void measure(const BenchAllReduceOptions& options, Communicator& comm) {
  std::vector<std::string> results;
  for (const int64_t bytes : options.bytes) {
    const auto times = time_all_reduce(comm, bytes, options.repeats);
    results.push_back(describe(comm, bytes, spread_of(times), options.json));
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
          "[bench] ranks that another launcher started can form one group only; name "
          "one of --backends");
    }
    const std::string& backend = options.backends.front();
    if (backend == "thread") {
      at::set_num_threads(std::max(1, usable_cpus() / options.nproc));
      run_ranks(options.nproc, [&](Communicator& comm) { measure(options, comm); });
      return;
    }
    JoinOptions joining;
    joining.backend = backend;
    const JoinedRun run = join_run(joining);
    measure(options, *run.comm);
  });
}

}  // namespace tandem::app
