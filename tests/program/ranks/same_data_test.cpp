// All hosts of a run, and all processes that resume it, must read the same data.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tandem/data/dataset.h"
#include "tandem/data/write_digits.h"
#include "tests/program/program.h"
#include "tests/program/ranks/workers.h"

namespace tandem::same_data_test {

using testing::HasSubstr;

constexpr size_t kHeaderBytes = 16;

// Folders with the same digits.
class SameData : public testing::Test {
 protected:
  SameData() {
    write_digits(scratch_ / "a", 96, 24);
    for (const char* name : {"b", "c"}) {
      std::filesystem::copy(scratch_ / "a", scratch_ / name);
    }
  }

  // Makes all images black; the labels do not change.
  void blacken(const std::string& folder, const std::string& images) const {
    const auto path = scratch_ / (folder + "/" + images + "-images-idx3-ubyte");
    auto bytes = read_file(path);
    std::fill(bytes.begin() + kHeaderBytes, bytes.end(), '\0');
    replace_file(path, bytes);
  }

  std::vector<std::string> run_on(const std::string& folder) const {
    return {"train", "--model", "simplenet",      "--batch-size",
            "16",    "--data",  scratch_ / folder};
  }

  // Three hosts with a rank and a folder each.
  std::vector<CommandResult> run_on_all(const Arguments& more) const {
    const auto port = unused_port();
    return run_together(3, [&](int rank) {
      const std::string folder(1, static_cast<char>('a' + rank));
      return tandem_run(with(run_on(folder), more), variables_of_rank(rank, 3, port));
    });
  }

  const Scratch scratch_;
};

TEST_F(SameData, InDifferentFoldersTrains) {
  const auto results = run_on_all({});
  expect_parts(checked(results[0]).output, {"3 ranks over shm", "Test set: "});
  EXPECT_EQ(checked(results[1]).output, "");
  EXPECT_EQ(checked(results[2]).output, "");
}

TEST_F(SameData, ARankWithBlackImagesIsNamed) {
  blacken("c", "train");
  for (const auto& result : run_on_all({})) {
    expect_error_line(
        result, 2, {"the training images differ between rank 2 and rank 0", "--data"});
  }
}

TEST_F(SameData, TestImagesAreComparedToo) {
  blacken("b", "t10k");
  for (const auto& result : run_on_all({})) {
    expect_exit(result, 2, {"the test images differ between rank 1 and rank 0"});
  }
}

// Only rank 0 reads.
TEST_F(SameData, IsScatteredFromRankZeroOnly) {
  blacken("b", "train");
  for (const auto& result : run_on_all({"--share", "scatter"})) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
  }
}

// Returns whether a child of the process has ended and was not reaped.
bool has_zombie(pid_t pid) {
  const auto folder = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid);
  std::ifstream children(folder + "/children");
  for (pid_t child = 0; children >> child;) {
    std::ifstream status("/proc/" + std::to_string(child) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("State:\tZ", 0) == 0) {
        return true;
      }
    }
  }
  return false;
}

// The launcher starts a process that reads the data for the ranks.
TEST_F(SameData, TheLauncherReapsTheProcessThatReadsTheData) {
  const auto flags = run_on("a");
  Process run(
      {with(
           {program()}, flags,
           {"--nproc", "2", "--epochs", "1000000", "--log-every", "1", "--out",
            scratch_ / "run"}),
       {},
       true});
  wait_until_it_reports(scratch_ / "run");
  EXPECT_FALSE(run.poll()) << "the run has ended";
  EXPECT_TRUE(eventually([&] { return !has_zombie(run.pid()); }));
}

TEST_F(SameData, AFileThatShrinksDuringTheRunIsNamed) {
  for (const std::string ranks : {"1", "2"}) {
    const auto folder = scratch_ / ("npy" + ranks);
    const auto out = scratch_ / ("run" + ranks);
    write_digits(folder, 96, 24, DigitsFormat::npy);
    const auto file = folder + "/train_x.npy";
    std::thread other([&] {
      wait_until_it_reports(out);
      std::filesystem::resize_file(file, 1'000);
    });
    const auto result = tandem_run(with(
        run_on("npy" + ranks),
        {"--nproc", ranks, "--epochs", "1000000", "--log-every", "1", "--out", out}));
    other.join();
    expect_error_line(
        result, 1, {"[files] '" + file + "' has 1000 bytes, expected 75392 "});
  }
}

class ResumedData : public SameData, public testing::WithParamInterface<const char*> {
 protected:
  CommandResult train_on(
      const std::string& folder, const std::string& ranks,
      const Arguments& more) const {
    return tandem_run(with(
        run_on(folder),
        {"--nproc", ranks, "--share", GetParam(), "--out", scratch_ / "run"}, more));
  }
};

TEST_P(ResumedData, MayMoveButNotChange) {
  checked(train_on("a", "3", {}));
  blacken("b", "train");
  const auto other = train_on("b", "3", {"--resume", "auto", "--epochs", "2"});
  expect_error_line(
      other, 2,
      {"the training images are not those that", "/run/checkpoints/step-", "--data",
       "--init"});
  EXPECT_THAT(read_file(scratch_ / "run/config.toml"), HasSubstr("epochs = 1\n"));
  checked(train_on("c", "1", {"--resume", "auto", "--epochs", "2"}));
  EXPECT_EQ(json_number(scratch_ / "run/summary.json", "epochs"), 2);
}

INSTANTIATE_TEST_SUITE_P(
    Shared, ResumedData, testing::Values("sampler", "scatter"),
    [](const auto& row) { return std::string(row.param); });

}  // namespace tandem::same_data_test
