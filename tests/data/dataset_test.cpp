#include "tandem/data/load_dataset.h"
#include "tandem/data/named_datasets.h"
#include "tandem/data/write_digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/idx.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::dataset_test {

using testing::ElementsAre;

const char* const kTrainImages = "/train-images-idx3-ubyte";
const char* const kTrainLabels = "/train-labels-idx1-ubyte";
const char* const kTestImages = "/t10k-images-idx3-ubyte";
const char* const kTestLabels = "/t10k-labels-idx1-ubyte";

IdxArray images(int64_t count, int64_t height, int64_t width, uint8_t value) {
  const auto size = static_cast<size_t>(count * height * width);
  return {{count, height, width}, std::vector<uint8_t>(size, value)};
}

IdxArray labels(const std::vector<uint8_t>& values) {
  return {{static_cast<int64_t>(values.size())}, values};
}

// 4 training and 3 test images of 2 x 5; some files compressed.
void write_folder(const std::string& folder) {
  make_directories(folder);
  write_idx(folder + kTrainImages, images(4, 2, 5, 7));
  write_idx(folder + kTrainLabels + ".gz", labels({0, 3, 1, 5}));
  write_idx(folder + kTestImages + ".gz", images(3, 2, 5, 9));
  write_idx(folder + kTestLabels, labels({3, 0, 1}));
}

TEST(Dataset, FolderOfIdxFilesIsLoaded) {
  const Scratch scratch;
  write_folder(scratch / "data");
  const DatasetSplits splits = load_dataset(scratch / "data");
  EXPECT_EQ(splits.train.size, 4);
  EXPECT_THAT(splits.train.inputs.shape, ElementsAre(1, 2, 5));
  EXPECT_EQ(splits.train.inputs.sample_bytes(), 10);
  EXPECT_EQ(splits.train.inputs.bytes, std::vector<uint8_t>(40, 7));
  EXPECT_THAT(splits.train.targets.bytes, ElementsAre(0, 3, 1, 5));
  EXPECT_EQ(splits.test.size, 3);
  EXPECT_EQ(splits.test.inputs.bytes, std::vector<uint8_t>(30, 9));
  // The test part's largest label is 3, and both must agree.
  EXPECT_EQ(splits.train.num_classes, 6);
  EXPECT_EQ(splits.test.num_classes, 6);
  EXPECT_THAT(splits.train.class_names, ElementsAre("0", "1", "2", "3", "4", "5"));
}

TEST(Dataset, LimitKeepsTheFirstSamplesOfBothParts) {
  const Scratch scratch;
  write_folder(scratch / "data");
  const DatasetSplits two = load_dataset(scratch / "data", 2);
  EXPECT_EQ(two.train.size, 2);
  EXPECT_EQ(two.test.size, 2);
  EXPECT_EQ(two.train.num_classes, 6);
  const DatasetSplits many = load_dataset(scratch / "data", 100);
  EXPECT_EQ(many.train.size, 4);
  EXPECT_EQ(many.test.size, 3);
}

TEST(Dataset, PartsThatDoNotMatchAreReported) {
  const Scratch scratch;
  const std::string folder = scratch / "data";
  write_folder(folder);
  write_idx(folder + kTestLabels, labels({5, 0, 1, 1}));
  expect_error<DataError>(
      [&] { return load_idx_folder(folder); },
      {folder + kTestImages + ".gz' has 3 images",
       folder + kTestLabels + "' has 4 labels"});

  write_folder(folder);
  write_idx(folder + kTrainImages, images(4, 5, 2, 7));
  expect_error<DataError>(
      [&] { return load_idx_folder(folder); }, {folder, "5x2", "2x5"});

  write_folder(folder);
  remove_all(folder + kTrainLabels + ".gz");
  expect_error<DataError>(
      [&] { return load_idx_folder(folder); },
      {"'" + folder + "'", "train-labels-idx1-ubyte"});

  // Images in place of labels.
  write_idx(folder + kTrainLabels, images(4, 2, 5, 7));
  expect_error<DataError>(
      [&] { return load_idx_folder(folder); }, {kTrainLabels, "swapped"});
}

TEST(Dataset, LabelsWithoutAClassAreRejected) {
  const Scratch scratch;
  write_folder(scratch / "mnist");
  write_idx(scratch / "mnist" + kTestLabels, labels({3, 0, 200}));
  expect_error<DataError>(
      [&] { return load_idx_folder(scratch / "mnist"); },
      {"a test label is 200, expected at most 5"});

  write_folder(scratch / "mnist");
  write_idx(scratch / "mnist" + kTrainLabels + ".gz", labels({0, 3, 200, 5}));
  setenv("TANDEM_DATA", scratch.path().c_str(), 1);
  expect_error<DataError>(
      [] { return load_dataset("mnist"); }, {"label of 200", "expected 0 to 9"});
  unsetenv("TANDEM_DATA");
}

TEST(Dataset, PathsWithoutIdxFilesAreRejected) {
  const Scratch scratch;
  expect_error<ConfigError>(
      [&] { return load_dataset(scratch / "missing"); },
      {scratch / "missing", "digits, mnist"});
  std::filesystem::create_symlink("gone", scratch / "link");
  expect_error<ConfigError>(
      [&] { return load_dataset(scratch / "link"); }, {"digits, mnist"});
  replace_file(scratch / "file", "x");
  expect_error<DataError>(
      [&] { return load_dataset(scratch / "file"); },
      {"file' has no known format", "--data"});
}

TEST(Dataset, AnUnknownNameIsReportedWithTheNearest) {
  expect_error<ConfigError>(
      [] { return load_dataset("mnits"); }, {"did you mean 'mnist'", "digits"});
}

TEST(Dataset, MnistIsFoundInTandemData) {
  const Scratch scratch;
  write_folder(scratch / "mnist");
  setenv("TANDEM_DATA", scratch.path().c_str(), 1);
  const DatasetSplits splits = load_dataset("mnist");
  EXPECT_EQ(splits.train.name, "mnist");
  EXPECT_EQ(splits.train.size, 4);
  remove_all(scratch / "mnist");
  setenv("XDG_CACHE_HOME", scratch.path().c_str(), 1);
  expect_error<DataError>(
      [] { return load_dataset("mnist"); }, {scratch.path() + "/mnist", "--data"});
  unsetenv("TANDEM_DATA");
  unsetenv("XDG_CACHE_HOME");
}

TEST(Dataset, WrittenDigitsRoundTrip) {
  const Scratch scratch;
  write_digits(scratch / "digits", 30, 20);
  const DatasetSplits splits = load_idx_folder(scratch / "digits");
  EXPECT_EQ(splits.train.size, 30);
  EXPECT_EQ(splits.test.size, 20);
  EXPECT_THAT(splits.train.inputs.shape, ElementsAre(1, 28, 28));
  EXPECT_EQ(splits.train.num_classes, 10);
  EXPECT_NE(
      std::vector<uint8_t>(
          splits.train.inputs.bytes.begin(), splits.train.inputs.bytes.begin() + 784),
      std::vector<uint8_t>(
          splits.test.inputs.bytes.begin(), splits.test.inputs.bytes.begin() + 784));
}

}  // namespace tandem::dataset_test
