#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"
#include "tandem/comm/backends/mpi.h"
#include "tandem/launch/mpirun.h"

namespace tandem {

// Functions for tests whose ranks are processes that mpirun starts. Such a test runs
// twice. First, the test program starts itself under mpirun with only this test. Then
// each process under mpirun runs the test as one rank.

constexpr int kMpiRanks = 4;

/// Returns whether this process is a rank that rerun_under_mpirun() started.
inline bool is_mpi_rank() {
  return get_env("OMPI_COMM_WORLD_RANK").has_value();
}

/// Returns the address sanitizer's options for ranks, without leak detection. Open
/// MPI's plugins leak memory and are unloaded before the end, so leaks cannot be
/// attributed to the plugins.
inline std::string asan_options() {
  return get_env("ASAN_OPTIONS").value_or("") + ":detect_leaks=0";
}

/// Returns the output of ranks without the lines of GoogleTest, so that a long log ends
/// with the relevant part.
inline std::string without_frames(const std::string& output) {
  std::string rest;
  for (const auto& line : split(output, '\n')) {
    if (!line.empty() && line[0] != '[' && line.find("Running main() from") != 0) {
      rest += line + "\n";
    }
  }
  return rest;
}

/// Runs the current test again, on `ranks` processes that mpirun starts. The test fails
/// if that run fails. In the ranks, the environment variable TANDEM_TEST_DIRECTORY is
/// the path of a temporary directory. Further calls in the same test do nothing.
inline void rerun_under_mpirun(int ranks = kMpiRanks) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  static std::string last;
  if (last == name) {
    return;
  }
  last = name;
  const std::string directory = make_private_directory();
  const auto result = run_command(
      mpirun_command(
          ranks, {executable_path(), "--gtest_color=no", "--gtest_filter=" + name}),
      {{"TANDEM_TEST_DIRECTORY", directory}, {"ASAN_OPTIONS", asan_options()}}, 100);
  remove_all(directory);
  EXPECT_TRUE(result.status.ok()) << result.errors << without_frames(result.output);
  EXPECT_NE(result.output.find("[  PASSED  ] 1 test."), std::string::npos)
      << result.output;
}

/// Runs `body` if this process is one of the first `size` ranks of mpirun. All ranks of
/// mpirun must call this function.
inline void run_mpi_ranks(int size, const std::function<void(Communicator&)>& body) {
  MpiOptions options;
  options.timeout = std::chrono::milliseconds(20'000);
  static const auto world = make_mpi_communicator(options);
  const bool takes_part = world->rank() < size;
  const auto group = world->split(takes_part ? 0 : 1);
  if (takes_part) {
    body(*group);
  }
}

}  // namespace tandem
