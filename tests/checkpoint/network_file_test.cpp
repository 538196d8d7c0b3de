#include "tandem/checkpoint/network_file.h"

#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::network_file_test {

// A run directory with a checkpoint, whose network file was "net.pt2".
class NetworkFile : public testing::Test {
 protected:
  NetworkFile() {
    make_directories(step_);
    replace_file(net_, "network");
    config_.model.kind = ModelKind::file;
    config_.model.file = net_;
    config_.output.out = run_;
  }

  // Makes the copy and the config.toml of a run that starts.
  void start() const {
    keep_network_file(config_, run_, false);
    replace_file(run_ + "/config.toml", to_toml(config_));
  }

  RunConfig resumed() const {
    RunConfig config = config_;
    config.output.resume = "auto";
    return config;
  }

  CheckpointNetwork checkpoint() const {
    return {step_ + "/model.safetensors", net_, sha256_hex("network", 7)};
  }

  const Scratch scratch_;
  const std::string run_ = scratch_ / "run";
  const std::string step_ = run_ + "/checkpoints/step-00000004";
  const std::string net_ = scratch_ / "net.pt2";
  const std::string copy_ = run_ + "/network.pt2";
  RunConfig config_;
};

TEST_F(NetworkFile, OfANewRunIsTheFileItself) {
  start();
  EXPECT_EQ(network_file(config_), net_);
  EXPECT_EQ(read_file(copy_), "network");
}

TEST_F(NetworkFile, OfANewRunReplacesEarlierCopies) {
  replace_file(copy_, "other");
  replace_file(run_ + "/network.pt", "other");
  start();
  EXPECT_EQ(read_file(copy_), "network");
  EXPECT_FALSE(file_exists(run_ + "/network.pt"));
}

TEST_F(NetworkFile, OfAResumedRunIsTheCopy) {
  start();
  replace_file(net_, "changed");
  EXPECT_EQ(network_file(resumed()), copy_);
  keep_network_file(resumed(), run_, true);
  EXPECT_EQ(read_file(copy_), "network");
}

TEST_F(NetworkFile, OfAResumedRunMayBeNamedAgain) {
  start();
  RunConfig config = resumed();
  config.model.file = scratch_ / "moved.pt2";
  expect_error<DataError>([&] { network_file(config); }, {"moved.pt2", "--model FILE"});
  replace_file(config.model.file, "network");
  EXPECT_EQ(network_file(config), config.model.file);
}

TEST_F(NetworkFile, OfAResumedRunIsCopiedToAnotherRun) {
  start();
  RunConfig config = resumed();
  config.output.resume = step_;
  const auto other = scratch_ / "other";
  make_directories(other);
  keep_network_file(config, other, true);
  EXPECT_EQ(read_file(other + "/network.pt2"), "network");
}

TEST_F(NetworkFile, MissesAreReportedWithAdvice) {
  start();
  remove_all(net_);
  expect_error<DataError>(
      [&] { network_file(config_); }, {net_, "check the path of --model"});
  EXPECT_EQ(network_file(resumed()), copy_);
  remove_all(copy_);
  expect_error<DataError>(
      [&] { network_file(resumed()); }, {net_, run_, "--model FILE"});
}

TEST_F(NetworkFile, OfACheckpointIsItsRunsCopy) {
  start();
  EXPECT_EQ(network_file_of(checkpoint()), copy_);
  // A file with another content does not count.
  replace_file(copy_, "other");
  EXPECT_EQ(network_file_of(checkpoint()), net_);
  replace_file(net_, "other");
  expect_error<ConfigError>(
      [&] { network_file_of(checkpoint()); },
      {"another file", "SHA-256", "--model FILE"});
  remove_all(net_);
  remove_all(copy_);
  expect_error<DataError>(
      [&] { network_file_of(checkpoint()); }, {"missing", net_, "--model FILE"});
}

TEST_F(NetworkFile, OfACheckpointCanBeNamed) {
  start();
  const auto moved = scratch_ / "moved.pt2";
  expect_error<DataError>([&] { network_file_of(checkpoint(), moved); }, {"moved.pt2"});
  replace_file(moved, "other");
  expect_error<ConfigError>(
      [&] { network_file_of(checkpoint(), moved); }, {"another file"});
  replace_file(moved, "network");
  EXPECT_EQ(network_file_of(checkpoint(), moved), moved);
}

}  // namespace tandem::network_file_test
