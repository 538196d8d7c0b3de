#include "tandem/train/agreement/start_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/config/fields.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem::start_checks_test {

using testing::HasSubstr;

std::string with_rank_2(
    const std::function<void(RunConfig&)>& change,
    const std::function<void(DatasetSplits&)>& change_data = [](DatasetSplits&) {}) {
  return error_of<ConfigError>([&] {
    run_ranks(3, [&](Communicator& comm) {
      RunConfig config;
      DatasetSplits data{noise_images(20), noise_images(10)};
      if (comm.rank() == 2) {
        change(config);
        change_data(data);
      }
      check_same_run(config, parts_of(data), comm);
    });
  });
}

// Changes the last byte that is compared.
void change_last_byte(Bytes& bytes, int64_t size) {
  std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  copy.at(static_cast<size_t>(size) - 1) ^= 1;
  bytes = copy;
}

TEST(SameRun, NamesTheSettingAndTheRankThatDiffer) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"seed", "7"}, {"sampler_seed", "7"}, {"lr", "0.5"}}) {
    const Field& field = find_field(name, "test");
    expect_parts(
        with_rank_2([&, &value = value](RunConfig& config) {
          set_field(config, field, value, "test");
        }),
        {name + " differs between rank 2", field.flag()});
  }
  EXPECT_THAT(
      with_rank_2([](RunConfig& config) { config.output.out = "/tmp/x"; }),
      HasSubstr("--out"));
}

TEST(SameRun, ComparesTheContentOfModelFiles) {
  const Scratch scratch;
  replace_file(scratch / "a.pt2", "network");
  replace_file(scratch / "b.pt2", "network");
  replace_file(scratch / "c.pt2", "other");
  const DatasetSplits data{noise_images(20), noise_images(10)};
  const auto with_file_of_rank_2 = [&](const std::string& name) {
    return error_of<ConfigError>([&] {
      run_ranks(3, [&](Communicator& comm) {
        const bool second = comm.rank() == 2;
        RunConfig config;
        set_field(
            config, find_field("model", "test"),
            second && name == "net" ? name : scratch / (second ? name : "a.pt2"),
            "test");
        check_same_run(config, parts_of(data), comm);
      });
    });
  };
  EXPECT_EQ(with_file_of_rank_2("b.pt2"), "(no error)");
  EXPECT_THAT(
      with_file_of_rank_2("c.pt2"),
      HasSubstr("the files of --model differ: rank 0 and rank 2"));
  EXPECT_THAT(
      with_file_of_rank_2("net"), HasSubstr("model differs between rank 2 and rank 0"));
}

TEST(SameRun, HostsMayHaveDifferentPaths) {
  EXPECT_EQ(
      with_rank_2([](RunConfig& config) {
        config.data.source = "/elsewhere";
        config.ranks.node_rank = 1;
        config.ranks.master_addr = "10.0.0.1";
      }),
      "(no error)");
}

TEST(SameRun, NamesTheDataAndTheRankThatDiffer) {
  struct Case {
    const char* part;
    std::function<void(DatasetSplits&)> change;
  };
  const std::vector<Case> cases = {
      {"training images", [](auto& data) { data.train = noise_images(19); }},
      {"training images",
       [](auto& data) {
         change_last_byte(data.train.inputs.bytes, data.train.size * 64);
       }},
      {"training labels",
       [](auto& data) { change_last_byte(data.train.targets.bytes, data.train.size); }},
      {"test images",
       [](auto& data) {
         change_last_byte(data.test.inputs.bytes, data.test.size * 64);
       }},
      // The bytes are the same, but the shape differs.
      {"training images", [](auto& data) {
         data.train.inputs.shape = {1, 4, 16};
       }}};
  for (const auto& [part, change] : cases) {
    expect_parts(
        with_rank_2([](RunConfig&) {}, change),
        {std::string("the ") + part + " differ between rank 2 and rank 0", "--data"});
  }
}

TEST(SameRun, NamesTheRankWithoutAPartOfTheData) {
  const auto with_validation_of = [](const std::function<bool(int)>& has) {
    return error_of<ConfigError>([&] {
      run_ranks(3, [&](Communicator& comm) {
        DatasetSplits data{noise_images(20), noise_images(10)};
        if (has(comm.rank())) {
          data.validation = noise_images(5);
        }
        check_same_run(RunConfig(), parts_of(data), comm);
      });
    });
  };
  expect_parts(
      with_validation_of([](int rank) { return rank != 1; }),
      {"rank 1 has no validation part, expected the parts of rank 0",
       "rank 1 is on " + host_name(), "--data"});
  expect_parts(
      with_validation_of([](int rank) { return rank == 2; }),
      {"rank 0 has no validation part, expected the parts of rank 2",
       "rank 2 is on " + host_name()});
}

TEST(SameRun, SamplesBeyondALimitMayDiffer) {
  EXPECT_THAT(
      error_of<ConfigError>([] {
        run_ranks(3, [](Communicator& comm) {
          DatasetSplits data{noise_images(20 + comm.rank()), noise_images(10)};
          data.train.size = 20;
          check_same_run(RunConfig(), parts_of(data), comm);
        });
      }),
      "(no error)");
}

std::string with_samples(
    const std::vector<int64_t>& samples, int64_t batch, Uneven uneven) {
  return error_of<ConfigError>([&] {
    run_ranks(static_cast<int>(samples.size()), [&](Communicator& comm) {
      const int64_t own = samples[static_cast<size_t>(comm.rank())];
      check_same_steps(own, (own + batch - 1) / batch, uneven, comm);
    });
  });
}

TEST(SameSteps, DifferentNumbersOfStepsAreAnError) {
  EXPECT_EQ(with_samples({64, 64, 64}, 16, Uneven::pad), "(no error)");
  EXPECT_EQ(with_samples({64, 64, 63}, 16, Uneven::join), "(no error)");
  EXPECT_THAT(
      with_samples({64, 64, 48}, 16, Uneven::pad),
      HasSubstr("rank 0 has 64 samples in 4 steps, rank 2 has 48 in 3"));
  expect_parts(
      with_samples({64, 63}, 16, Uneven::error), {"rank 1 has 63", "--uneven"});
}

}  // namespace tandem::start_checks_test
