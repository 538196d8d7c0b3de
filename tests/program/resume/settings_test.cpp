// Settings of a resumed run: its own, not those of the recipe.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/program/program.h"

namespace tandem::settings_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A run of a recipe with flags that override the recipe.
class ResumedSettings : public testing::Test {
 protected:
  ResumedSettings() {
    replace_file(
        recipe_,
        "model = \"simplenet\"\nepochs = 4\nbatch_size = 16\nlr = 0.5\n"
        "eval_batch_size = 100\ncheckpoint_every = 5\nkeep_checkpoints = 0\n");
  }

  CommandResult start(const Arguments& flags = {}) const {
    return tandem_run(with(
        {"train", recipe_, "--out", out_, "--limit", "160", "--epochs", "1"}, flags));
  }
  CommandResult resume(const Arguments& more = {}) const {
    return tandem_run(with({"train", "--resume", "auto", "--out", out_}, more));
  }
  CommandResult resume_with_recipe(const Arguments& more) const {
    return resume(with({recipe_}, more));
  }
  std::string config() const {
    return read_file(out_ + "/config.toml");
  }
  double steps() const {
    return json_number(out_ + "/summary.json", "steps");
  }

  const Scratch scratch_;
  const std::string recipe_ = scratch_ / "recipe.toml";
  const std::string out_ = scratch_ / "run";
};

TEST_F(ResumedSettings, OverrideTheRecipe) {
  checked(start({"--lr", "0.25", "--nproc", "3"}));
  const auto before = config();
  const auto resumed = checked(resume_with_recipe({"--epochs", "2"}));
  expect_parts(resumed.output, {"160 samples", "3 ranks"});
  expect_parts(
      resumed.errors,
      {"resuming with epochs 2 instead of 1\n",
       "keeps its own settings, not the recipe's: lr 0.25 instead of 0.5\n"});
  // An epoch has four steps.
  EXPECT_EQ(steps(), 8);
  std::string wanted = before;
  wanted.replace(wanted.find("epochs = 1"), 10, "epochs = 2");
  wanted.replace(wanted.find("resume = \"\""), 11, "resume = \"auto\"");
  EXPECT_EQ(config(), wanted);
}

// Rank 1 has no directory of the run, and rank 2 has that of another run.
TEST_F(ResumedSettings, OfRank0AreThoseOfAllRanks) {
  checked(start({"--lr", "0.25", "--nproc", "3"}));
  const auto other = scratch_ / "other";
  std::filesystem::copy(out_, other, std::filesystem::copy_options::recursive);
  std::string settings = config();
  settings.replace(settings.find("lr = 0.25"), 9, "lr = 0.75");
  replace_file(other + "/config.toml", settings);
  const auto port = unused_port();
  const std::vector<std::string> outs = {out_, scratch_ / "absent", other};
  const auto results = run_together(3, [&](int rank) {
    return tandem_run(
        {"train", "--resume", "auto", "--out", outs[static_cast<size_t>(rank)],
         "--epochs", "2"},
        variables_of_rank(rank, 3, port));
  });
  for (const auto& result : results) {
    checked(result);
  }
  EXPECT_THAT(config(), HasSubstr("lr = 0.25\n"));
  EXPECT_EQ(steps(), 8);
  EXPECT_FALSE(file_exists(outs[1]));
  EXPECT_EQ(json_number(other + "/summary.json", "steps"), 4);
}

TEST_F(ResumedSettings, NeedNoRecipe) {
  checked(start());
  const auto resumed = checked(resume());
  EXPECT_THAT(
      resumed.errors,
      AllOf(Not(HasSubstr("resuming with")), Not(HasSubstr("keeps its own"))));
  EXPECT_EQ(steps(), 10);
}

// Processes do not keep the choice that "auto" made for threads.
TEST_F(ResumedSettings, ThreadRanksResumeAsProcesses) {
  checked(start({"--rank-type", "thread", "--nproc", "3"}));
  const auto resumed = checked(resume({"--rank-type", "process", "--epochs", "2"}));
  EXPECT_THAT(resumed.output, HasSubstr("ranks over shm"));
}

TEST_F(ResumedSettings, AreReadUnderTheirOldNames) {
  checked(start({"--rank-type", "thread", "--nproc", "3", "--model", "lenet3x3"}));
  std::string earlier = config();
  const auto rename = [&](const std::string& now, const std::string& before) {
    ASSERT_NE(earlier.find(now), std::string::npos) << now;
    earlier.replace(earlier.find(now), now.size(), before);
  };
  rename("rank_type = ", "ranks = ");
  rename("\"lenet3x3\"", "\"mymodel\"");
  replace_file(out_ + "/config.toml", earlier);
  const auto resumed = checked(resume({"--epochs", "2"}));
  expect_parts(resumed.output, {"lenet3x3", "3 ranks over thread"});
}

TEST_F(ResumedSettings, KeepChangesOfAnEarlierResume) {
  checked(start());
  checked(resume({"--epochs", "2", "--set", "lr=0.1"}));
  EXPECT_EQ(steps(), 20);
  checked(resume_with_recipe({"--epochs", "3"}));
  EXPECT_EQ(steps(), 30);
  expect_parts(config(), {"lr = 0.1\n", "limit = 160\n"});
}

TEST_F(ResumedSettings, AreThoseOfTheCheckpointsRun) {
  checked(start());
  const auto elsewhere = scratch_ / "elsewhere";
  run_ok(
      {"train", recipe_, "--resume", out_ + "/checkpoints/step-00000005/", "--out",
       elsewhere});
  EXPECT_EQ(json_number(elsewhere + "/summary.json", "steps"), 10);
  EXPECT_EQ(steps(), 10) << "the first run's own files stay";
}

// A run that was killed before its first checkpoint has config.toml, but no checkpoint.
TEST_F(ResumedSettings, AreThoseOfARunWithoutACheckpoint) {
  checked(start({"--lr", "0.25"}));
  remove_all(out_ + "/checkpoints");
  const auto before = config();
  checked(resume({"--dry-run"}));
  EXPECT_EQ(config(), before);
  const auto refused = resume({"--model", "convnet"});
  expect_error_line(refused, 2, {"model is \"convnet\"", out_});
  EXPECT_EQ(config(), before);
  const auto resumed = checked(resume_with_recipe({"--epochs", "2"}));
  expect_parts(
      resumed.errors,
      {"'" + out_ + "' has no checkpoint; starting from step 0 with the settings of '" +
           out_ + "/config.toml', except epochs 2 instead of 1\n",
       "keeps its own settings, not the recipe's: lr 0.25 instead of 0.5\n"});
  expect_parts(config(), {"lr = 0.25\n", "limit = 160\n", "model = \"simplenet\"\n"});
  EXPECT_EQ(steps(), 20);
}

TEST_F(ResumedSettings, AreNotThoseOfADryRun) {
  checked(start({"--dry-run"}));
  const auto fresh = checked(resume_with_recipe({"--limit", "320", "--epochs", "1"}));
  EXPECT_THAT(fresh.errors, HasSubstr("starting a new run"));
  EXPECT_EQ(steps(), 20);
}

TEST_F(ResumedSettings, AreTheRecipesWithoutARun) {
  const auto fresh = checked(resume_with_recipe({"--limit", "160", "--epochs", "2"}));
  EXPECT_THAT(fresh.errors, HasSubstr("starting a new run"));
  EXPECT_EQ(steps(), 20);
}

TEST_F(ResumedSettings, OfInitialWeightsAreNotReadAgain) {
  checked(start());
  const auto second = scratch_ / "second";
  const auto weights = out_ + "/checkpoints/step-00000010";
  const Arguments run = {"train", recipe_, "--limit", "160", "--out", second};
  run_ok(with(run, {"--epochs", "1", "--init", weights}));
  remove_all(weights);
  run_ok(with(run, {"--epochs", "2", "--resume", "auto"}));
}

// Each refused run leaves the directory as it was for the next.
TEST_F(ResumedSettings, RefuseOtherFlagsInOneLineAndChangeNoFiles) {
  checked(start({"--nproc", "3", "--optimizer", "sgd"}));
  const auto before = config();
  const auto refuses = [&](const Arguments& flags,
                           std::initializer_list<std::string> says) {
    const auto refused = resume_with_recipe(flags);
    expect_error_line(refused, 2, {out_, "--init"});
    expect_parts(refused.errors, says);
    EXPECT_EQ(config(), before);
    EXPECT_EQ(steps(), 4);
  };
  refuses(
      {"--model", "convnet"},
      {"model is \"convnet\"", "expected \"simplenet\"", "change --model back"});
  refuses({"--seed", "7"}, {"seed is 7", "expected 0", "--seed"});
  refuses({"--limit", "320"}, {"limit is 320", "expected 160", "--limit"});
  refuses({"--set", "std=0.5"}, {"std is 0.5", "expected 0.3081", "--std"});
  refuses({"--optimizer", "adam"}, {"optimizer is \"adam\"", "expected \"sgd\""});
  refuses({"--freeze", "fc.bias"}, {"freeze is \"fc.bias\""});
  refuses({"--momentum", "0.9"}, {"momentum is 0.9", "expected 0.0"});
  refuses({"--no-dropout"}, {"dropout is false", "expected true"});
}

}  // namespace tandem::settings_test
