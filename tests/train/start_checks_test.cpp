#include "tandem/train/start_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/thread.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string with_rank_2(
    const std::function<void(RunConfig&)>& change, int64_t data_size = 20) {
  return error_of<ConfigError>([&] {
    run_ranks(3, [&](Communicator& comm) {
      RunConfig config;
      if (comm.rank() == 2) {
        change(config);
      }
      check_same_run(config, noise_images(comm.rank() == 2 ? data_size : 20), comm);
    });
  });
}

TEST(SameRun, NamesTheSettingThatDiffersAndWhere) {
  EXPECT_THAT(
      with_rank_2([](RunConfig& config) { config.seed = 7; }),
      AllOf(HasSubstr("rank 2"), HasSubstr("another seed"), HasSubstr("--seed")));
  EXPECT_THAT(
      with_rank_2([](RunConfig& config) { config.lr = 0.5; }),
      AllOf(HasSubstr("another lr"), HasSubstr("--lr")));
  EXPECT_THAT(
      with_rank_2([](RunConfig& config) { config.out = "/tmp/x"; }),
      HasSubstr("--out"));
}

TEST(SameRun, HostsMayHaveTheirOwnPathsAndPlaces) {
  EXPECT_EQ(
      with_rank_2([](RunConfig& config) {
        config.data = "/elsewhere";
        config.node_rank = 1;
        config.master_addr = "10.0.0.1";
      }),
      "(no error)");
}

TEST(SameRun, FindsOtherData) {
  EXPECT_THAT(
      with_rank_2([](RunConfig&) {}, 19), HasSubstr("the training data differ"));
}

std::string with_samples(
    const std::vector<int64_t>& samples, int64_t batch, const std::string& uneven) {
  return error_of<ConfigError>([&] {
    run_ranks(static_cast<int>(samples.size()), [&](Communicator& comm) {
      const int64_t own = samples[static_cast<size_t>(comm.rank())];
      check_same_steps(own, (own + batch - 1) / batch, uneven, comm);
    });
  });
}

TEST(SameSteps, ARankWithAnotherNumberOfStepsStopsTheRunBeforeItHangs) {
  EXPECT_EQ(with_samples({64, 64, 64}, 16, "pad"), "(no error)");
  EXPECT_EQ(with_samples({64, 64, 63}, 16, "join"), "(no error)");
  EXPECT_THAT(
      with_samples({64, 64, 48}, 16, "pad"),
      HasSubstr("rank 0 has 64 samples in 4 steps, rank 2 has 48 in 3"));
  EXPECT_THAT(
      with_samples({64, 63}, 16, "error"),
      AllOf(HasSubstr("rank 1 has 63"), HasSubstr("--uneven")));
}

TEST(ChangedSettings, NamesWhatDecidesAboutResults) {
  RunConfig before;
  RunConfig now = before;
  EXPECT_EQ(changed_settings(to_toml(before), now), "");
  now.out = "/tmp/x";
  now.nproc = "4";
  EXPECT_EQ(changed_settings(to_toml(before), now), "");
  now.lr = 0.5;
  now.model = "convnet";
  EXPECT_EQ(
      changed_settings(to_toml(before), now),
      "model \"net\" -> \"convnet\", lr -1.0 -> 0.5");
}

}  // namespace
}  // namespace tandem
