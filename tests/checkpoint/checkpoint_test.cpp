#include "tandem/checkpoint/checkpoint.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/formats/safetensors.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::checkpoint_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

CheckpointContent content_at(int64_t step, double value) {
  CheckpointContent content;
  content.state.model = {
      {"a.weight", at::full({3, 2}, value)}, {"a.bias", at::full({3}, -value)}};
  content.state.optimizer = {{"momentum/a.weight", at::full({3, 2}, 10 * value)}};
  content.position = {1, step - 2, step, 64 * (step - 2)};
  content.description = {{"model", "net"}};
  content.config = "format_version = 1\nseed = 7\n";
  return content;
}

class Checkpoints : public testing::Test {
 protected:
  std::string save(int64_t step, double value, int64_t keep = 0) {
    return save_checkpoint(directory_, content_at(step, value), {keep});
  }
  static double loaded_value(const std::string& path) {
    auto content = content_at(0, 0);
    load_checkpoint(path, content, *make_single_communicator());
    return content.state.model[0].tensor[0][0].item<double>();
  }
  static void truncate_file(const std::string& path) {
    const auto bytes = read_file(path);
    replace_file(path, bytes.substr(0, bytes.size() - 5));
  }
  std::vector<std::string> names() const {
    return list_directory(directory_);
  }

  Scratch scratch_;
  std::string directory_ = scratch_ / "checkpoints";
};

TEST_F(Checkpoints, HoldTheTimeOfTheRun) {
  auto content = content_at(9, 0.5);
  content.time = {1.5, 96, 7.25, 4, "12.34"};
  const auto path = save_checkpoint(directory_, content, {});
  auto loaded = content_at(0, 0);
  load_checkpoint(path, loaded, *make_single_communicator());
  EXPECT_EQ(loaded.time.train_seconds, 1.5);
  EXPECT_EQ(loaded.time.samples, 96);
  EXPECT_EQ(loaded.time.program_seconds, 7.25);
  EXPECT_EQ(loaded.time.earlier_program_seconds, 4);
  EXPECT_EQ(loaded.time.program_start, "12.34");
}

// Only rank 0 has the files.
TEST_F(Checkpoints, HoldStatePositionAndConfigForAllRanks) {
  const auto path = save(9, 0.5);
  const auto loaded = on_each_rank("thread", 3, [&](Communicator& comm) {
    auto content = content_at(0, 0);
    content.config = "";
    load_checkpoint(comm.rank() == 0 ? path : "nowhere", content, comm);
    return content;
  });
  for (const auto& content : loaded) {
    EXPECT_EQ(content.position.epoch, 1);
    EXPECT_EQ(content.position.step_in_epoch, 7);
    EXPECT_EQ(content.position.step, 9);
    EXPECT_EQ(content.position.samples_in_epoch, 448);
    EXPECT_EQ(content.config, content_at(0, 0).config);
    EXPECT_TRUE(content.state.model[1].tensor.equal(at::full({3}, -0.5)));
    EXPECT_TRUE(content.state.optimizer[0].tensor.equal(at::full({3, 2}, 5.0)));
  }
}

TEST_F(Checkpoints, ThatRank0CannotReadFailOnAllRanks) {
  const auto path = save(9, 0.5);
  remove_all(path + "/training.safetensors");
  run_ranks(3, [&](Communicator& comm) {
    auto content = content_at(0, 0);
    const auto message =
        error_of<DataError>([&] { load_checkpoint(path, content, comm); });
    TANDEM_CHECK(message.find("training.safetensors") != std::string::npos, message);
  });
}

TEST_F(Checkpoints, AreKeptByCountNewestFirst) {
  for (int64_t step = 8; step <= 12; ++step) {
    save(step, 1, 2);
  }
  EXPECT_THAT(names(), ElementsAre("step-00000011", "step-00000012"));
}

TEST_F(Checkpoints, TheBestIsFoundByTheNewestCheckpoint) {
  const auto best = [&] { return best_checkpoint(scratch_.path()); };
  const auto error = [&] {
    return error_of<ConfigError>([&] { static_cast<void>(best()); });
  };
  EXPECT_THAT(error(), HasSubstr("has no checkpoints"));
  save(8, 1);
  EXPECT_THAT(error(), HasSubstr("has no evaluation yet"));
  for (int64_t step = 9; step <= 11; ++step) {
    auto content = content_at(step, 1);
    content.best = {0.25, 9, step - 9};
    save_checkpoint(directory_, content, {2});
    if (step < 11) {
      EXPECT_EQ(best(), checkpoint_path(directory_, 9));
    }
  }
  EXPECT_THAT(error(), HasSubstr("has not kept the best checkpoint, of step 9"));
}

TEST_F(Checkpoints, TheBestIsKeptAndLinked) {
  for (int64_t step = 9; step <= 14; ++step) {
    auto content = content_at(step, static_cast<double>(step));
    content.best = {0.25, step < 12 ? 9 : 12, 0};
    save_checkpoint(directory_, content, {2, true});
    EXPECT_EQ(loaded_value(directory_ + "/best"), content.best.step);
    EXPECT_EQ(newest_checkpoint(directory_), checkpoint_path(directory_, step));
    if (step == 11) {
      EXPECT_THAT(
          names(), UnorderedElementsAre(
                       "best", "step-00000009", "step-00000010", "step-00000011"));
    }
  }
  EXPECT_THAT(
      names(),
      UnorderedElementsAre("best", "step-00000012", "step-00000013", "step-00000014"));
  leave_later_checkpoints(directory_, 11);
  EXPECT_THAT(
      names(), UnorderedElementsAre(
                   "left-step-00000012", "left-step-00000013", "left-step-00000014"));
}

TEST_F(Checkpoints, RememberTheLowestTestLoss) {
  auto content = content_at(9, 1);
  content.best = {0.1, 7, 2};
  const auto path = save_checkpoint(directory_, content, {});
  auto loaded = content_at(0, 0);
  load_checkpoint(path, loaded, *make_single_communicator());
  EXPECT_EQ(loaded.best.loss, 0.1);
  EXPECT_EQ(loaded.best.step, 7);
  EXPECT_EQ(loaded.best.evaluations_since, 2);
  load_checkpoint(save(10, 1), loaded, *make_single_communicator());
  EXPECT_EQ(loaded.best.step, -1);
}

TEST_F(Checkpoints, OfTheSameStepReplaceTheOldOne) {
  save(9, 1);
  EXPECT_EQ(loaded_value(save(9, 2)), 2);
  EXPECT_THAT(names(), ElementsAre("step-00000009"));
}

TEST_F(Checkpoints, RemoveUnfinishedFilesOfAKilledWriter) {
  make_directories(directory_ + "/tmp-123");
  replace_file(directory_ + "/tmp-123/model.safetensors", "half");
  EXPECT_EQ(newest_whole_checkpoint(directory_), "");
  save(9, 1);
  EXPECT_THAT(names(), ElementsAre("step-00000009"));
}

TEST_F(Checkpoints, LeaveNamesOfTheUser) {
  const std::vector<std::string> others = {
      "replaced-old", "replaced-step-9.bak", "tmp-1-mine", "tmp-important"};
  for (const auto& name : others) {
    make_directories(directory_ + "/" + name);
  }
  for (const char* name : {"/tmp-123", "/tmp-step-00000007"}) {
    make_directories(directory_ + name);
  }
  save(9, 1);
  leave_later_checkpoints(directory_, 9);
  EXPECT_EQ(
      names(), (std::vector<std::string>{
                   "replaced-old", "replaced-step-9.bak", "step-00000009", "tmp-1-mine",
                   "tmp-important"}));
}

TEST_F(Checkpoints, ValuesThatAreNotFiniteAreNotSaved) {
  save(9, 1);
  expect_error<DataError>(
      [&] { save(10, std::nan(""), 1); }, {"a.weight", "not finite"});
  EXPECT_THAT(names(), ElementsAre("step-00000009"));
}

TEST_F(Checkpoints, ADamagedNewestFallsBackToThePrevious) {
  const auto older = save(9, 1);
  for (const char* file : {"/model.safetensors", "/training.safetensors"}) {
    const auto torn = save(10, 2);
    truncate_file(torn + file);
    testing::internal::CaptureStderr();
    EXPECT_EQ(newest_whole_checkpoint(directory_), older);
    expect_parts(
        testing::internal::GetCapturedStderr(),
        {torn + file, "using the previous checkpoint"});
    EXPECT_THAT(names(), ElementsAre("damaged-step-00000010", "step-00000009"));
  }
  // The damaged checkpoint does not count; otherwise the only good one would be
  // removed.
  save(10, 3, 1);
  EXPECT_THAT(names(), ElementsAre("damaged-step-00000010", "step-00000010"));
}

TEST_F(Checkpoints, AreOrderedByStepAndIgnoreCopies) {
  save(99'999'999, 1);
  make_directories(directory_ + "/step-best");
  make_directories(directory_ + "/step-00000003-good");
  const auto newest = save(100'000'000, 2, 1);
  EXPECT_EQ(newest_whole_checkpoint(directory_), newest);
  EXPECT_THAT(
      names(), ElementsAre("step-00000003-good", "step-100000000", "step-best"));
}

TEST_F(Checkpoints, LaterThanTheResumedStepAreRenamed) {
  for (const int64_t step : {8, 9, 10}) {
    save(step, 1);
  }
  leave_later_checkpoints(directory_, 8);
  EXPECT_THAT(
      names(),
      ElementsAre("left-step-00000009", "left-step-00000010", "step-00000008"));
  save(9, 2, 2);
  EXPECT_EQ(loaded_value(newest_whole_checkpoint(directory_)), 2);
  EXPECT_EQ(names().size(), 4u);
}

TEST_F(Checkpoints, OfAnotherFormatAreNotDamaged) {
  const auto path = save(9, 1);
  const std::pair<const char*, const char*> cases[] = {
      {"1", "start from its weights with --init"}, {"3", "update tandem"}};
  for (const char* name : {"/training.safetensors", "/model.safetensors"}) {
    auto file = read_safetensors(path + name);
    for (const auto& [format, advice] : cases) {
      file.metadata["format_version"] = format;
      write_safetensors(path + name, file);
      const auto named =
          AllOf(HasSubstr(std::string("has format ") + format), HasSubstr(advice));
      EXPECT_THAT(error_of<DataError>([&] { loaded_value(path); }), named);
      if (name == std::string("/model.safetensors")) {
        EXPECT_THAT(
            error_of<DataError>([&] { return load_model_state(path, nullptr); }),
            named);
        EXPECT_THAT(
            error_of<DataError>(
                [&] { return read_model(path, CheckpointWeights::own); }),
            named);
      }
      EXPECT_THAT(
          error_of<DataError>([&] { return newest_whole_checkpoint(directory_); }),
          named);
      EXPECT_THAT(names(), ElementsAre("step-00000009"));
    }
  }
  // Only its weights can be used.
  EXPECT_EQ(read_weights(path).at(0).tensor[0][0].item<double>(), 1);
}

TEST_F(Checkpoints, OfTheSameContentHaveTheSameBytes) {
  const auto path = save(9, 1);
  std::vector<std::string> bytes;
  for (const char* name : {"/model.safetensors", "/training.safetensors"}) {
    bytes.push_back(read_file(path + name));
  }
  save(9, 1);
  EXPECT_EQ(read_file(path + "/model.safetensors"), bytes[0]);
  EXPECT_EQ(read_file(path + "/training.safetensors"), bytes[1]);
}

TEST_F(Checkpoints, OnlyDamagedCheckpointsAreAnError) {
  truncate_file(save(9, 1) + "/training.safetensors");
  expect_error<DataError>(
      [&] { return newest_whole_checkpoint(directory_); },
      {"all checkpoints", "--out"});
  EXPECT_THAT(names(), ElementsAre("step-00000009"));
}

}  // namespace tandem::checkpoint_test
