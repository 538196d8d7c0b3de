#include "tandem/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tests/base/test_tools.h"

namespace tandem::files_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(ReadFile, ReturnsEveryByte) {
  const Scratch directory;
  std::string bytes(100'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 31);
  }
  for (const auto& content : {bytes, std::string()}) {
    replace_file(directory / "x", content);
    EXPECT_TRUE(read_file(directory / "x") == content);
  }
  EXPECT_EQ(read_file("/dev/null"), "");
  // The kernel reports a size of 0 for files in /proc.
  EXPECT_THAT(read_file("/proc/self/status"), HasSubstr("VmSize"));
}

TEST(ReadFile, ReadsAtMostTheLimit) {
  const Scratch directory;
  replace_file(directory / "five", "12345");
  EXPECT_EQ(read_file(directory / "five", 5), "12345");
  expect_error<DataError>(
      [&] { read_file(directory / "five", 4); }, {"five'", "more than 4 bytes"});
  EXPECT_THROW(read_file("/dev/zero", 1 << 20), DataError);
}

TEST(ReadFile, ReportsPathAndReason) {
  const Scratch directory;
  const std::string missing = directory / "missing";
  EXPECT_THAT(
      error_of<DataError>([&] { read_file(missing); }),
      AllOf(StartsWith("[files]"), HasSubstr(missing), HasSubstr("No such file")));
  expect_error<DataError>(
      [&] { read_file(directory.path()); },
      {directory.path(), "Is a directory; name a file"});
  const std::string long_name = directory / (std::string(300, 'x'));
  expect_error<DataError>([&] { read_file(long_name); }, {long_name, "too long"});
}

TEST(ReadFile, DistinguishesAReadErrorFromAnEmptyFile) {
  expect_error<DataError>([&] { read_file("/proc/self/mem"); }, {"Input/output error"});
}

TEST(ReplaceFile, ReplacesTheWholeFile) {
  const Scratch directory;
  replace_file(directory / "x", "a longer text");
  replace_file(directory / "x", "short");
  EXPECT_EQ(read_file(directory / "x"), "short");
  EXPECT_THAT(list_directory(directory.path()), ElementsAre("x"));
}

// A rename would replace the device, if the user may write to its directory.
TEST(ReplaceFile, WritesIntoAPipe) {
  const Scratch directory;
  const std::string pipe = directory / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  replace_file(pipe, "text");
  char bytes[8];
  EXPECT_EQ(read(reader, bytes, sizeof bytes), 4);
  close(reader);
  struct stat found {};
  ASSERT_EQ(stat(pipe.c_str(), &found), 0);
  EXPECT_TRUE(S_ISFIFO(found.st_mode));
  EXPECT_THAT(list_directory(directory.path()), ElementsAre("pipe"));
}

TEST(ReplaceFile, ObeysTheUmask) {
  const Scratch directory;
  for (const mode_t mask : {022, 027, 077, 002}) {
    const mode_t before = umask(mask);
    replace_file(directory / "x", "text");
    umask(before);
    struct stat status {};
    ASSERT_EQ(stat((directory / "x").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0666u & ~mask);
  }
}

TEST(ReplaceFile, KeepsTheOldFileUntilTheNewFileIsComplete) {
  const Scratch directory;
  replace_file(directory / "x", "old");
  replace_file(directory / "x", [&](int fd) {
    write_all(fd, "new", 3, "x");
    EXPECT_EQ(read_file(directory / "x"), "old");
  });
  EXPECT_EQ(read_file(directory / "x"), "new");
}

TEST(ReplaceFile, KeepsTheOldFileWhenTheWriterThrows) {
  const Scratch directory;
  replace_file(directory / "x", "old");
  const auto write = [](int fd) {
    write_all(fd, "half", 4, "x");
    throw std::runtime_error("the model is gone");
  };
  EXPECT_EQ(
      error_of<std::runtime_error>([&] { replace_file(directory / "x", write); }),
      "the model is gone");
  EXPECT_EQ(read_file(directory / "x"), "old");
  EXPECT_THAT(list_directory(directory.path()), ElementsAre("x"));
}

TEST(ReplaceFile, KeepsTheOldFileWhenTheDiskIsFull) {
  const Scratch directory;
  const std::string path = directory / "x";
  replace_file(path, "old");
  {
    const FileSizeLimit limit(1000);
    EXPECT_THAT(
        error_of<DataError>([&] { replace_file(path, std::string(5000, 'x')); }),
        AllOf(StartsWith("[files] cannot write"), HasSubstr(path)));
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_THAT(list_directory(directory.path()), ElementsAre("x"));
}

TEST(ReplaceFile, ReportsAMissingDirectory) {
  const Scratch directory;
  const std::string path = directory / "missing/x";
  expect_error<DataError>(
      [&] { replace_file(path, "text"); }, {"'" + path + "'", "No such file"});
  EXPECT_THAT(list_directory(directory.path()), IsEmpty());
}

TEST(ReplaceFile, DoesNotReplaceADirectory) {
  const Scratch directory;
  make_directories(directory / "x/inside");
  expect_error<DataError>(
      [&] { replace_file(directory / "x", "text"); }, {directory / "x"});
  EXPECT_THAT(list_directory(directory.path()), ElementsAre("x"));
  EXPECT_TRUE(file_exists(directory / "x/inside"));
}

TEST(ReplaceFile, LeaksNoDescriptors) {
  const Scratch directory;
  const auto open_files = [] { return list_directory("/proc/self/fd").size(); };
  const size_t before = open_files();
  replace_file(directory / "x", "text");
  EXPECT_THROW(
      replace_file(directory / "x", [](int) { throw DataError("no"); }), DataError);
  read_file(directory / "x");
  EXPECT_THROW(read_file(directory.path()), DataError);
  EXPECT_EQ(open_files(), before);
}

TEST(RemoveUnfinished, RemovesOnlyFilesOfAKilledWriter) {
  const Scratch directory;
  const auto path = directory / "x";
  code_of_child([&] {
    replace_file(path, [](int) { _exit(0); });
    return 1;
  });
  ASSERT_EQ(list_directory(directory.path()).size(), 1u);
  const std::vector<std::string> others = {
      "x", "x.1", "x.tmp", "x.tmp-1 copy", "x.tmp-mine", "xy.tmp-1"};
  for (const auto& name : others) {
    replace_file(directory / name, name);
  }
  remove_unfinished(path);
  EXPECT_EQ(list_directory(directory.path()), others);
}

TEST(IsInFolder, ComparesPlacesInsteadOfTexts) {
  const Scratch directory;
  const auto folder = directory / "run/checkpoints";
  make_directories(folder + "/step-1");
  make_directories(directory / "run/other/step-1");
  std::filesystem::create_directory_symlink(directory / "run", directory / "link");
  std::filesystem::create_directory_symlink("step-1", folder + "/best");
  for (const auto& path :
       {folder + "/step-1", folder + "/step-1//", folder + "/best",
        directory / "run/./checkpoints/../checkpoints/step-1",
        directory / "link/checkpoints/step-1"}) {
    EXPECT_TRUE(is_in_folder(path, folder)) << path;
    EXPECT_TRUE(is_in_folder(path, directory / "link//checkpoints/")) << path;
  }
  for (const auto& path : {directory / "run/other/step-1", folder, std::string()}) {
    EXPECT_FALSE(is_in_folder(path, folder)) << path;
  }
}

TEST(WriteAll, AdvisesToFreeSpaceOnAFullDisk) {
  const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(
      error_of<DataError>([&] { write_all(fd, "text", 4, "checkpoint"); }),
      "[files] cannot write 'checkpoint': No space left on device; free some space");
  close(fd);
}

TEST(MakeDirectories, CreatesParentsAndAcceptsExistingDirectories) {
  const Scratch directory;
  make_directories(directory / "a/b/c");
  make_directories(directory / "a/b/c");
  make_directories(directory / "a/b/");
  EXPECT_THAT(list_directory(directory / "a/b"), ElementsAre("c"));
}

TEST(MakeDirectories, ReportsAFileInThePath) {
  const Scratch directory;
  replace_file(directory / "a", "text");
  for (const auto* path : {"a", "a/b"}) {
    expect_error<DataError>(
        [&] { make_directories(directory / path); },
        {directory / path, "Not a directory"});
  }
}

TEST(RemoveAll, RemovesTreesAndFilesAndAcceptsMissingPaths) {
  const Scratch directory;
  make_directories(directory / "a/b");
  replace_file(directory / "a/b/c", "text");
  remove_all(directory / "a");
  EXPECT_FALSE(file_exists(directory / "a"));
  EXPECT_NO_THROW(remove_all(directory / "a"));
}

TEST(ListDirectory, SortsNames) {
  const Scratch directory;
  for (const auto* name : {"step-2", "step-10", "latest"}) {
    replace_file(directory / name, "");
  }
  EXPECT_THAT(
      list_directory(directory.path()), ElementsAre("latest", "step-10", "step-2"));
}

TEST(ListDirectory, ReportsAMissingDirectory) {
  expect_error<DataError>(
      [] { list_directory("/missing/place"); }, {"/missing/place", "No such file"});
}

TEST(PrivateDirectory, IsNewAndPrivate) {
  const Scratch first;
  const Scratch second;
  EXPECT_NE(first.path(), second.path());
  struct stat status {};
  ASSERT_EQ(stat(first.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(TemporaryDirectory, IsTheFirstThatThisProcessCanWrite) {
  const auto saved = get_env("TMPDIR");
  const std::string folder = make_private_directory();
  setenv("TMPDIR", folder.c_str(), 1);
  EXPECT_EQ(temporary_directory(), folder);
  setenv("TMPDIR", "/proc/nowhere", 1);
  EXPECT_EQ(temporary_directory(), "/tmp");
  saved ? setenv("TMPDIR", saved->c_str(), 1) : unsetenv("TMPDIR");
  remove_all(folder);
}

TEST(CacheDirectory, DependsOnTheEnvironment) {
  const auto cache_with = [](const Variables& variables) {
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    return cache_directory();
  };
  const std::string home = getenv("HOME") == nullptr ? "" : getenv("HOME");
  EXPECT_EQ(cache_with({{"XDG_CACHE_HOME", "/fast"}}), "/fast/tandem");
  EXPECT_EQ(cache_with({{"XDG_CACHE_HOME", ""}, {"HOME", "/me"}}), "/me/.cache/tandem");
  EXPECT_TRUE(has_cache_directory());
  // Never in a folder that others could have made.
  setenv("HOME", "", 1);
  EXPECT_FALSE(has_cache_directory());
  expect_error<ConfigError>(
      [] { cache_directory(); }, {"XDG_CACHE_HOME and HOME are not set"});
  setenv("HOME", home.c_str(), 1);
  unsetenv("XDG_CACHE_HOME");
}

TEST(ExecutablePath, IsThisTest) {
  EXPECT_THAT(executable_path(), StartsWith("/"));
  EXPECT_TRUE(file_exists(executable_path()));
}

}  // namespace tandem::files_test
