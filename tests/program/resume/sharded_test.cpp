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

// Ranks that do not find the folder of rank 0, as on a host without a shared disk, send
// their shares to those that do.
TEST_F(ShardedRun, RanksThatFindTheFolderSaveTheSharesOfAll) {
  const auto out = scratch_ / "run";
  const auto run_ranks = [&](const std::string& epochs) {
    const auto port = unused_port();
    return run_together(3, [&](int rank) {
      // Rank 1 has an empty folder in place of the disk.
      const std::string hide = rank == 1 ? "mount -t tmpfs none \"$0\" && " : "";
      const Arguments in_own_mounts = {
          "unshare", "--user", "--map-root-user",    "--mount",
          "sh",      "-c",     hide + "exec \"$@\"", scratch_.path()};
      const Arguments train = {
          program(),  "train",     "--model",   "simplenet", "--limit",     "150",
          "--epochs", epochs,      "--backend", "gloo",      "--optimizer", "adam",
          "--shard",  "optimizer", "--resume",  "auto",      "--out",       out};
      return run_command(
          with(in_own_mounts, train), variables_of_rank(rank, 3, port), 100);
    });
  };
  for (const auto& result : run_ranks("1")) {
    if (result.errors.find("unshare") != std::string::npos) {
      GTEST_SKIP() << result.errors;
    }
    checked(result);
  }
  const auto shards = [](const std::string& directory) {
    const auto names = list_directory(newest_checkpoint(directory));
    return std::count_if(names.begin(), names.end(), [](const std::string& name) {
      return name.rfind("training-", 0) == 0;
    });
  };
  EXPECT_EQ(shards(out + "/checkpoints"), 2);
  for (const auto& result : run_ranks("2")) {
    checked(result);
  }
  const auto calm = scratch_ / "calm";
  run_ok(
      {"train", "--model", "simplenet", "--limit", "150", "--epochs", "2", "--backend",
       "gloo", "--nproc", "3", "--optimizer", "adam", "--shard", "optimizer", "--out",
       calm});
  EXPECT_EQ(shards(calm + "/checkpoints"), 3);
  EXPECT_EQ(hash_of(out), hash_of(calm));
}

}  // namespace tandem::sharded_run_test
