#include "tandem/checkpoint/run_directory.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "tests/base/test_tools.h"

namespace tandem::run_lock_test {

using testing::HasSubstr;
using testing::IsEmpty;

class RunLocks : public testing::Test {
 protected:
  std::string refusal() const {
    return error_of<ConfigError>([&] { const RunLock second(out_.path()); });
  }

  const Scratch out_;
};

TEST_F(RunLocks, RejectASecondRunAndNameTheFirst) {
  const RunLock first(out_.path());
  expect_parts(
      refusal(), {"another run writes to '" + out_.path() + "'",
                  "process " + std::to_string(getpid()) + " on host ", "--out"});
}

TEST_F(RunLocks, AreRemovedWithTheRun) {
  for (int i = 0; i < 3; ++i) {
    const RunLock lock(out_.path());
    EXPECT_TRUE(file_exists(out_ / "run.lock"));
  }
  EXPECT_THAT(list_directory(out_.path()), IsEmpty());
}

TEST_F(RunLocks, WaitForARunThatIsEnding) {
  auto first = std::make_unique<RunLock>(out_.path());
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    first.reset();
  });
  EXPECT_NO_THROW(const RunLock second(out_.path()));
  ending.join();
}

TEST_F(RunLocks, EndWithAKilledProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(out_.path());
    [[maybe_unused]] const auto told = write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(file_exists(out_ / "run.lock"));
  {
    const RunLock next(out_.path());
    EXPECT_THAT(refusal(), HasSubstr("process " + std::to_string(getpid())));
  }
  EXPECT_THAT(list_directory(out_.path()), IsEmpty());
  close(ready[0]);
  close(ready[1]);
}

TEST(OwnEntries, AreNeverLinks) {
  const Scratch scratch;
  const auto out = scratch / "run";
  make_directories(out);
  EXPECT_NO_THROW(check_own_entries(out));
  for (const char* name :
       {"run.lock", "config.toml", "environment.json", "metrics.jsonl", "summary.json",
        "network.pt", "network.pt2", "checkpoints", "tensorboard", "trace"}) {
    const auto entry = out + "/" + name;
    for (const auto& target : {scratch / "missing", scratch.path()}) {
      std::filesystem::create_symlink(target, entry);
      expect_error<ConfigError>(
          [&] { check_own_entries(out); },
          {"[train] '" + entry + "' is a symbolic link, expected a", "--out"});
      std::filesystem::remove(entry);
    }
    ASSERT_EQ(mkfifo(entry.c_str(), 0600), 0);
    expect_error<ConfigError>([&] { check_own_entries(out); }, {entry, "special file"});
    std::filesystem::remove(entry);
  }
}

TEST(OwnEntries, AreNotWrittenUnderOtherNames) {
  const Scratch scratch;
  replace_file(scratch / "keys", "secret");
  for (const char* name : {"/metrics.jsonl", "/config.toml", "/summary.json"}) {
    std::filesystem::create_hard_link(scratch / "keys", scratch.path() + name);
  }
  RunDirectory directory(scratch.path(), RunConfig(), std::nullopt);
  directory.note_resume({}, 0, 0);
  directory.finish({}, {});
  EXPECT_EQ(read_file(scratch / "keys"), "secret");
}

// The folder of a run, which another process changes.
class LostFolder : public testing::Test {
 protected:
  LostFolder() {
    make_directories(out_);
    lock_ = std::make_unique<RunLock>(out_ + "/");
  }

  std::string error() const {
    return error_of<FolderLost>([&] { lock_->check(); });
  }

  const Scratch scratch_;
  const std::string out_ = scratch_ / "run";
  const std::string moved_ = scratch_ / "moved";
  std::unique_ptr<RunLock> lock_;
};

TEST_F(LostFolder, IsNoticedIfItWasRemoved) {
  EXPECT_NO_THROW(lock_->check());
  remove_all(out_);
  expect_parts(
      error(),
      {"[train] '" + out_ + "' was removed or renamed during the run", "--out"});
}

TEST_F(LostFolder, IsNoticedIfItWasRenamedUntilItIsBack) {
  std::filesystem::rename(out_, moved_);
  expect_parts(error(), {"was removed or renamed"});
  std::filesystem::create_directory_symlink(moved_, out_);
  expect_parts(error(), {"is another folder now"});
  std::filesystem::remove(out_);
  std::filesystem::rename(moved_, out_);
  EXPECT_NO_THROW(lock_->check());
}

TEST_F(LostFolder, OfAnotherRunKeepsTheLockOfThatRun) {
  std::filesystem::rename(out_, moved_);
  make_directories(out_);
  const RunLock other(out_);
  expect_parts(error(), {"is another folder now"});
  lock_.reset();
  EXPECT_NO_THROW(other.check());
}

TEST_F(LostFolder, IsNoticedIfOnlyTheLockFileWasRemoved) {
  remove_all(out_ + "/run.lock");
  expect_parts(error(), {out_, "run.lock"});
}

TEST_F(LostFolder, IsNeitherWrittenNorMadeAgain) {
  RunDirectory directory(out_, RunConfig(), std::nullopt, lock_.get());
  directory.note_resume({}, 0, 0);
  CheckpointContent content;
  content.state.model = {{"weight", at::zeros({3})}};
  const auto save = [&] {
    save_checkpoint(directory.checkpoints(), content, {}, [&] { lock_->check(); });
  };
  save();
  std::filesystem::rename(out_, moved_);
  for (const bool is_replaced : {false, true}) {
    if (is_replaced) {
      make_directories(out_);
    }
    EXPECT_THROW(save(), FolderLost);
    EXPECT_THROW(directory.note_resume({}, 0, 0), FolderLost);
    EXPECT_THROW(directory.finish({}, {}), FolderLost);
    EXPECT_THROW(
        RunDirectory(out_, RunConfig(), std::nullopt, lock_.get()), FolderLost);
    EXPECT_EQ(file_exists(out_), is_replaced);
  }
  EXPECT_THAT(list_directory(out_), IsEmpty());
}

TEST_F(LostFolder, EndsASaveThatHasBegun) {
  CheckpointContent content;
  content.state.model = {{"weight", at::zeros({3})}};
  int checks = 0;
  const auto check = [&] {
    if (++checks == 2) {
      std::filesystem::rename(out_, moved_);
      make_directories(out_ + "/checkpoints");
    }
    lock_->check();
  };
  EXPECT_THROW(save_checkpoint(out_ + "/checkpoints", content, {}, check), FolderLost);
  EXPECT_THAT(list_directory(out_ + "/checkpoints"), IsEmpty());
}

TEST_F(LostFolder, OfCheckpointsIsNotReplacedByALink) {
  CheckpointContent content;
  content.state.model = {{"weight", at::zeros({3})}};
  make_directories(moved_);
  std::filesystem::create_directory_symlink(moved_, out_ + "/checkpoints");
  const auto check = [&] { lock_->check(); };
  expect_error<DataError>(
      [&] { save_checkpoint(out_ + "/checkpoints", content, {}, check); },
      {out_ + "/checkpoints"});
  EXPECT_THAT(list_directory(moved_), IsEmpty());
}

TEST_F(LostFolder, CanBeTheMetricsOnly) {
  RunDirectory directory(out_, RunConfig(), std::nullopt, lock_.get());
  remove_all(out_ + "/metrics.jsonl");
  expect_error<DataError>(
      [&] { directory.note_resume({}, 0, 0); }, {"metrics.jsonl' was removed"});
}

}  // namespace tandem::run_lock_test
