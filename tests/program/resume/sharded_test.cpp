// Runs whose ranks write their shares of a checkpoint.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/program/resume/resumed_run.h"

namespace tandem::sharded_run_test {

using testing::Contains;
using testing::HasSubstr;

class ShardedRun : public testing::Test {
 protected:
  static Arguments sharded(
      const std::string& out, const std::string& shard, const std::string& epochs = "1",
      const std::string& nproc = "3") {
    return {"train", "--model",     "simplenet", "--limit",    "120",   "--optimizer",
            "adam",  "--nproc",     nproc,       "--shard",    shard,   "--out",
            out,     "--epochs",    epochs,      "--executor", "eager", "--batch-size",
            "8",     "--ema-decay", "0.9"};
  }

  Scratch scratch_;
};

TEST_F(ShardedRun, ResumesOnOtherRanksWithOtherSharding) {
  struct Case {
    const char* from;
    const char* to;
    const char* nproc;
  };
  for (const auto& [from, to, nproc] :
       {Case{"parameters", "gradients", "2"}, Case{"optimizer", "parameters", "4"}}) {
    SCOPED_TRACE(testing::Message() << from << " " << to << " " << nproc);
    const auto one = scratch_ / "one";
    const auto out = scratch_ / "run";
    std::filesystem::remove_all(one);
    std::filesystem::remove_all(out);
    run_ok(sharded(one, "none"));
    run_ok(sharded(out, from));
    EXPECT_EQ(
        run_to_end(with(sharded(out, to, "2", nproc), kResume), out),
        run_to_end(with(sharded(one, to, "2", nproc), kResume), one));
  }
}

TEST_F(ShardedRun, IsUsedAsARunOfOneFile) {
  const auto one = scratch_ / "one";
  const auto run = scratch_ / "run";
  run_ok(sharded(one, "none"));
  run_ok(sharded(run, "parameters"));
  const auto files = list_directory(newest_checkpoint(run + "/checkpoints"));
  EXPECT_THAT(files, Contains("model.safetensors.index.json"));
  EXPECT_THAT(files, Contains("training-00003-of-00003.safetensors"));
  for (const Arguments& more : {Arguments{}, Arguments{"--ema"}}) {
    const auto exported = [&](const std::string& from) {
      run_ok(with({"export", "--checkpoint", from, "--out", from + ".pt"}, more));
      return read_file(from + ".pt");
    };
    EXPECT_TRUE(exported(run) == exported(one));
    const auto evaluated = [&](const std::string& from) {
      return run_ok(with({"eval", "--checkpoint", from}, more)).output;
    };
    EXPECT_EQ(evaluated(run), evaluated(one));
  }
  const auto begun = [&](const std::string& from, const std::string& name) {
    run_ok(
        {"train", "--model", "simplenet", "--limit", "100", "--epochs", "0", "--init",
         from, "--out", scratch_ / name});
    return hash_of(scratch_ / name);
  };
  EXPECT_EQ(begun(run, "begun"), begun(one, "begun one"));
  EXPECT_EQ(hash_of(scratch_ / "begun"), hash_of(one));
}

TEST_F(ShardedRun, AFolderThatAnotherRankDoesNotFindIsAnError) {
  const auto port = unused_port();
  const auto ended = run_together(2, [&](int rank) {
    // Each rank has another folder in place of the disk that hosts share.
    const auto mine = scratch_ / std::to_string(rank);
    std::filesystem::create_directories(mine);
    return run_command(
        {"unshare",
         "--user",
         "--map-root-user",
         "--mount",
         "sh",
         "-c",
         "mount -t tmpfs none \"$0\" && exec \"$@\"",
         scratch_ / "0",
         program(),
         "train",
         "--model",
         "simplenet",
         "--limit",
         "100",
         "--backend",
         "gloo",
         "--optimizer",
         "adam",
         "--shard",
         "optimizer",
         "--out",
         scratch_ / "0/run"},
        variables_of_rank(rank, 2, port), 100);
  });
  if (ended[0].errors.find("unshare") != std::string::npos) {
    GTEST_SKIP() << ended[0].errors;
  }
  expect_exit(
      ended[0], 2,
      {"[checkpoint] rank 1 does not find the folder '" + (scratch_ / "0/run") +
           "/checkpoints' of rank 0",
       "use --shard none"});
}

}  // namespace tandem::sharded_run_test
