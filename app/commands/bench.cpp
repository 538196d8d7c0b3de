#include <fmt/core.h>

#include "app/bench_flags.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/failure_file.h"
#include "tandem/launch/launcher.h"
#include "tandem/launch/mpirun.h"

namespace tandem::app {

namespace {

// Replaces this process with the worker. The number of threads is set here because BLAS
// reads it while the worker is loaded.
[[noreturn]] void become_bench(
    const std::string& action, const Arguments& arguments, int threads,
    const DeviceChoice& device = {DeviceChoice::Kind::cpu}) {
  const auto text = std::to_string(threads);
  Variables variables = rank_variables(1);
  variables.emplace_back("OMP_NUM_THREADS", text);
  variables.emplace_back("OPENBLAS_NUM_THREADS", text);
  exec_program(worker_command({"bench", action}, arguments, device), variables);
}

int run_step(const Arguments& arguments) {
  const auto options = parse_bench_step(arguments);
  become_bench("step", arguments, options.threads, options.config.exec.device);
}

int run_loader(const Arguments& arguments) {
  parse_bench_loader(arguments);
  become_bench("loader", arguments, 1);
}

int run_optimizer(const Arguments& arguments) {
  const auto options = parse_bench_optimizer(arguments);
  become_bench("optimizer", arguments, 1, options.config.exec.device);
}

// Runs the ranks with mpirun's defaults: they are bound to cores and never yield.
void run_under_mpirun(const std::vector<std::string>& command, int nproc) {
  const std::string who = "[bench] mpirun failed";
  const FailureFile file;
  Variables variables = file.variables();
  const auto more = rank_variables(nproc);
  variables.insert(variables.end(), more.begin(), more.end());
  const auto result =
      run_command(mpirun_command(nproc, command, MpirunCores::bound), variables, 3'600);
  if (!result.status.ok()) {
    file.throw_first(who);
    // If no rank reported a failure, the output of mpirun has the reason.
    throw Error(who + ": " + result.output + result.errors);
  }
}

// Returns the command of one backend's ranks. Rank 0 writes `result_file`.
std::vector<std::string> rank_command(
    const BenchAllReduceOptions& options, BackendKind backend,
    const std::string& result_file) {
  std::vector<std::string> bytes;
  for (const int64_t size : options.bytes) {
    bytes.push_back(std::to_string(size));
  }
  Arguments arguments = {"--nproc",       std::to_string(options.nproc),
                         "--backends",    name_of(backend),
                         "--bytes",       join(bytes, ","),
                         "--repeats",     std::to_string(options.repeats),
                         "--result-file", result_file};
  if (options.json) {
    arguments.emplace_back("--json");
  }
  return worker_command({"bench", "allreduce"}, arguments);
}

void launch_backend(
    const BenchAllReduceOptions& options, BackendKind backend,
    const std::string& result_file) {
  const auto command = rank_command(options, backend, result_file);
  if (row_of(backend).has_launcher) {
    run_under_mpirun(command, options.nproc);
    return;
  }
  LaunchOptions launching;
  launching.command = command;
  launching.nproc_per_node = backend == BackendKind::thread ? 1 : options.nproc;
  launching.fork_server = true;
  launching.first_rank_owns_terminal = true;
  launch_ranks(launching);
}

struct PrivateDirectory {
  const std::string path = make_private_directory();
  ~PrivateDirectory() {
    remove_all(path);
  }
};

// Starts new ranks for each backend, so that threads and sockets of one backend do not
// disturb the next.
int run_allreduce(const Arguments& arguments) {
  const auto options = parse_bench_allreduce(arguments);
  if (read_rank_env()) {
    exec_program(worker_command({"bench", "allreduce"}, arguments), rank_variables(1));
  }
  const PrivateDirectory directory;
  std::vector<std::string> results;
  for (const auto backend : options.backends) {
    const std::string file = directory.path + "/result";
    launch_backend(options, backend, file);
    results.push_back(read_file(file));
    if (!options.json) {
      fmt::print("{}", results.back());
    }
  }
  if (options.json) {
    fmt::print("{{\"results\": [{}]}}\n", join(results));
  }
  return 0;
}

}  // namespace

int run_bench(const Arguments& arguments) {
  return choose_bench(
      arguments, {&run_step, &run_loader, &run_optimizer, &run_allreduce});
}

}  // namespace tandem::app
