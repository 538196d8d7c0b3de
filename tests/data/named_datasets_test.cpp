#include "tandem/data/named_datasets.h"
#include "tandem/data/write_digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/file_lock.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/data/idx.h"
#include "tandem/data/load_dataset.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::named_datasets_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class NamedDatasets : public testing::Test {
 protected:
  NamedDatasets() {
    setenv("TANDEM_DATA", (scratch_ / "data").c_str(), 1);
    setenv("XDG_CACHE_HOME", (scratch_ / "cache").c_str(), 1);
  }
  ~NamedDatasets() override {
    unsetenv("TANDEM_DATA");
    unsetenv("XDG_CACHE_HOME");
  }
  // Labels 0 to `classes` - 1.
  void write_idx_files(const std::string& folder, int classes = 10) const {
    write_digits(scratch_ / folder, classes, classes);
  }

  const Scratch scratch_;
};

TEST_F(NamedDatasets, AreSearchedInTandemDataAndThenInTheCache) {
  EXPECT_THAT(
      dataset_folders("mnist"),
      ElementsAre(
          scratch_ / "data/mnist", scratch_ / "data", scratch_ / "cache/tandem/mnist"));
  // Files of another data set directly in $TANDEM_DATA have the same names.
  EXPECT_THAT(
      dataset_folders("kmnist"),
      ElementsAre(scratch_ / "data/kmnist", scratch_ / "cache/tandem/kmnist"));
  unsetenv("TANDEM_DATA");
  EXPECT_THAT(dataset_folders("kmnist"), ElementsAre(scratch_ / "cache/tandem/kmnist"));
}

TEST_F(NamedDatasets, AreFoundInFoldersWithAllTheirFiles) {
  EXPECT_TRUE(dataset_is_missing("mnist"));
  EXPECT_EQ(find_dataset("mnist"), "");
  write_idx_files("cache/tandem/mnist");
  EXPECT_EQ(find_dataset("mnist"), scratch_ / "cache/tandem/mnist");
  write_idx_files("data");
  EXPECT_EQ(find_dataset("mnist"), scratch_ / "data");
  // A folder with half of the files does not count.
  write_idx_files("data/mnist");
  remove_all(scratch_ / "data/mnist/t10k-images-idx3-ubyte");
  EXPECT_EQ(find_dataset("mnist"), scratch_ / "data");
  EXPECT_FALSE(dataset_is_missing("mnist"));
  EXPECT_TRUE(dataset_is_missing("cifar-10"));
}

TEST_F(NamedDatasets, OnlyDataSetsOfFilesCanBeMissing) {
  EXPECT_FALSE(dataset_is_missing("digits"));
  EXPECT_FALSE(dataset_is_missing("no-such-name"));
  EXPECT_FALSE(dataset_is_missing(scratch_ / "no-folder"));
}

// The process that draws them may be stopped forever.
TEST_F(NamedDatasets, WaitUntilTheDeadlineWhileAnotherProcessDrawsDigits) {
  const FileLock other(
      scratch_ / "cache/tandem/digits.lock", Deadline(std::chrono::minutes(1)));
  expect_error<DataError>(
      [] { return load_dataset("digits", 0, Deadline(std::chrono::milliseconds(50))); },
      {"digits.lock", "--timeout-seconds"});
}

TEST_F(NamedDatasets, HaveTheirNamesAndClasses) {
  write_idx_files("data/fashion-mnist");
  const auto fashion = load_dataset("fashion-mnist");
  EXPECT_EQ(fashion.train.name, "fashion-mnist");
  EXPECT_EQ(fashion.test.class_names.at(9), "Ankle boot");
  EXPECT_EQ(fashion.train.class_names.size(), 10u);
  write_idx_files("data/kmnist");
  EXPECT_EQ(load_dataset("kmnist").train.class_names.at(1), "ki");
}

TEST_F(NamedDatasets, HaveAtMostTenClasses) {
  write_idx_files("data/mnist");
  write_idx(
      scratch_ / "data/mnist/train-labels-idx1-ubyte",
      {{10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 200}});
  expect_error<DataError>(
      [] { return load_dataset("mnist"); }, {"label of 200", "expected 0 to 9"});
}

TEST_F(NamedDatasets, AMissingDataSetIsReportedWithAdvice) {
  EXPECT_THAT(
      error_of<DataError>([] { return load_dataset("fashion-mnist"); }),
      AllOf(
          HasSubstr("Fashion-MNIST is not in " + (scratch_ / "data/fashion-mnist")),
          EndsWith("run tandem data fetch fashion-mnist, or add --fetch")));
  write_idx_files("data/mnist");
  remove_all(scratch_ / "data/mnist/t10k-images-idx3-ubyte");
  EXPECT_THAT(
      error_of<DataError>([] { return load_dataset("mnist"); }),
      AllOf(
          HasSubstr("MNIST in '" + (scratch_ / "data/mnist")),
          HasSubstr("lacks t10k-images-idx3-ubyte"),
          EndsWith("run tandem data fetch mnist, or add --fetch")));
}

TEST_F(NamedDatasets, DamagedDigitsAreDrawnAgain) {
  const auto labels = load_dataset("digits").test.targets.bytes;
  const auto path = scratch_ / "cache/tandem/digits-1/t10k-labels-idx1-ubyte";
  auto content = read_file(path);
  content[1'000] = static_cast<char>((content[1'000] + 1) % 10);
  replace_file(path, content);
  testing::internal::CaptureStderr();
  const auto again = load_dataset("digits");
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(
          HasSubstr("drawing 70,000 digits into "),
          HasSubstr("(again, because a file is damaged)")));
  EXPECT_EQ(again.test.targets.bytes, labels);
}

// As in a container whose user has no home directory.
TEST_F(NamedDatasets, DigitsAreDrawnInMemoryWithoutACache) {
  const auto cached = load_dataset("digits");
  replace_file(scratch_ / "file", std::string("x"));
  for (const std::string& cache : {std::string(), scratch_ / "file"}) {
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    const auto home = get_env("HOME");
    setenv("HOME", "", 1);
    testing::internal::CaptureStderr();
    const auto drawn = load_dataset("digits");
    home ? setenv("HOME", home->c_str(), 1) : unsetenv("HOME");
    EXPECT_THAT(
        testing::internal::GetCapturedStderr(),
        AllOf(HasSubstr("drawn again at the next start"), HasSubstr("XDG_CACHE_HOME")));
    for (const auto part : {&DatasetSplits::train, &DatasetSplits::test}) {
      EXPECT_EQ(hashes_of(drawn.*part).inputs, hashes_of(cached.*part).inputs);
      EXPECT_EQ(hashes_of(drawn.*part).targets, hashes_of(cached.*part).targets);
      EXPECT_EQ((drawn.*part).class_names, (cached.*part).class_names);
      EXPECT_EQ((drawn.*part).name, "digits");
      EXPECT_TRUE((drawn.*part).is_loadable);
    }
  }
}

}  // namespace tandem::named_datasets_test
