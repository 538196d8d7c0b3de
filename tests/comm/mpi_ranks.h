#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

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

/// Returns the full name of a test.
inline std::string name_of(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

/// Returns the names of the tests that one start of mpirun runs: the current test, or
/// all tests of this process and of its suite whose names end in "/mpi" if the current
/// test is one of them. Starting the ranks takes most of the time.
inline std::vector<std::string> tests_of_one_start() {
  const auto& unit = *testing::UnitTest::GetInstance();
  const auto& current = *unit.current_test_info();
  const auto is_for_mpi = [](const testing::TestInfo& test) {
    const std::string name = test.name();
    return name.size() > 4 && name.compare(name.size() - 4, 4, "/mpi") == 0;
  };
  std::vector<std::string> names;
  const auto& suite = *unit.current_test_suite();
  for (int i = 0; i < suite.total_test_count(); ++i) {
    const auto& test = *suite.GetTestInfo(i);
    if (&test == &current ||
        (test.should_run() && is_for_mpi(test) && is_for_mpi(current))) {
      names.push_back(name_of(test));
    }
  }
  return names;
}

/// Runs the current test again, on `ranks` processes that mpirun starts. The test fails
/// if that run fails. In the ranks, the environment variable TANDEM_TEST_DIRECTORY is
/// the path of a temporary directory of this start. Further calls in the same test do
/// nothing.
inline void rerun_under_mpirun(int ranks = kMpiRanks) {
  const auto name = name_of(*testing::UnitTest::GetInstance()->current_test_info());
  static std::string last;
  if (last == name) {
    return;
  }
  last = name;
  static std::map<std::string, CommandResult> results;
  if (results.count(name) == 0) {
    const auto names = tests_of_one_start();
    const std::string directory = make_private_directory();
    // Gloo groups of earlier tests may have left many descriptors, and mpirun fails if
    // its own are above FD_SETSIZE.
    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    const auto result = run_command(
        mpirun_command(
            ranks, {executable_path(), "--gtest_color=no",
                    "--gtest_filter=" + join(names, ":")}),
        {{"TANDEM_TEST_DIRECTORY", directory}, {"ASAN_OPTIONS", asan_options()}}, 300);
    remove_all(directory);
    for (const auto& each : names) {
      results[each] = result;
    }
  }
  const auto& [status, output, errors, seconds] = results.at(name);
  const std::string passed = "[       OK ] " + name + " (";
  int num_passed = 0;
  for (size_t at = output.find(passed); at != std::string::npos;
       at = output.find(passed, at + 1)) {
    ++num_passed;
  }
  EXPECT_EQ(num_passed, ranks) << errors << without_frames(output);
  const bool another_failed = output.find("[  FAILED  ] ") != std::string::npos;
  EXPECT_TRUE(status.ok() || another_failed) << errors << without_frames(output);
}

/// Runs `body` if this process is one of the first `size` ranks of mpirun. All ranks of
/// mpirun must call this function.
inline void run_mpi_ranks(int size, const std::function<void(Communicator&)>& body) {
  static const auto world = make_mpi_communicator(std::chrono::milliseconds(20'000));
  const bool takes_part = world->rank() < size;
  const auto group = world->split(takes_part ? 0 : 1);
  if (takes_part) {
    body(*group);
  }
}

}  // namespace tandem
