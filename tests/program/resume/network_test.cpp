// Runs of a network file, resumed and evaluated after the file has moved.

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/graph/fixture_files.h"
#include "tests/program/program.h"

namespace tandem::network_test {

class NetworkRun : public testing::Test {
 protected:
  NetworkRun() {
    run_ok({"train", "--model", net_, "--limit", "64", "--out", run_});
    EXPECT_EQ(std::rename(net_.c_str(), moved_.c_str()), 0);
  }

  CommandResult resume(const Arguments& more = {}) const {
    return tandem_run(
        with({"train", "--resume", "auto", "--out", run_, "--epochs", "2"}, more));
  }
  CommandResult eval(const Arguments& more = {}) const {
    return tandem_run(with({"eval", "--checkpoint", run_, "--limit", "64"}, more));
  }

  const Scratch scratch_;
  const std::string run_ = scratch_ / "run";
  const std::string net_ = unpack_fixture(scratch_, "net-2.15.0.pt2");
  const std::string moved_ = scratch_ / "moved.pt2";
  const std::string copy_ = run_ + "/network.pt2";
};

TEST_F(NetworkRun, ReadsItsCopy) {
  checked(eval());
  checked(resume());
  EXPECT_EQ(read_file(copy_), read_file(moved_));
}

TEST_F(NetworkRun, NeedsTheFileIfItsCopyIsMissing) {
  remove_all(copy_);
  for (const auto& result : {resume(), eval()}) {
    expect_exit(result, 1, {net_, "--model FILE"});
  }
  checked(eval({"--model", moved_}));
  checked(resume({"--model", moved_}));
  EXPECT_TRUE(file_exists(copy_));
}

TEST_F(NetworkRun, RefusesAnotherFile) {
  const auto other = scratch_ / "other.pt2";
  replace_file(other, fixture("net-2.8.0.pt2"));
  const auto resumed = resume({"--model", other});
  expect_exit(resumed, 2, {"differs from that of", "--model"});
  const auto evaluated = eval({"--model", other});
  expect_exit(evaluated, 2, {"another file than the network of"});
}

}  // namespace tandem::network_test
