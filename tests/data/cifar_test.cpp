#include "tandem/data/cifar.h"
#include "tandem/data/load_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::cifar_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kImageBytes = 3 * 32 * 32;

// Every byte shows its position.
std::string record(int label, int image) {
  std::string bytes(1, static_cast<char>(label));
  for (size_t i = 0; i < kImageBytes; ++i) {
    bytes += static_cast<char>(image * 31 + static_cast<int>(i % 253));
  }
  return bytes;
}

// Files 1 to 5 with one record each, except two in the third; two in the last file.
void write_folder(const std::string& folder) {
  make_directories(folder);
  int image = 0;
  for (const auto& file : cifar_files()) {
    std::string bytes = record(image % 10, image);
    ++image;
    if (file == "data_batch_3.bin" || file == "test_batch.bin") {
      bytes += record(image % 10, image);
      ++image;
    }
    replace_file(folder + "/" + file, bytes);
  }
}

TEST(Cifar, RecordsComeInTheOrderOfTheFiles) {
  const Scratch scratch;
  write_folder(scratch / "data");
  // A folder of these files is recognized without a name.
  const DatasetSplits splits = load_dataset(scratch / "data");
  const Dataset& train = splits.train;
  const Dataset& test = splits.test;
  EXPECT_EQ(train.size, 6);
  EXPECT_EQ(test.size, 2);
  EXPECT_THAT(train.targets.bytes, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(test.targets.bytes, ElementsAre(6, 7));
  EXPECT_THAT(train.inputs.shape, ElementsAre(3, 32, 32));
  EXPECT_EQ(train.num_classes, 10);
  EXPECT_EQ(train.class_names.at(9), "truck");
  std::string pixels;
  for (int image = 0; image < 6; ++image) {
    pixels += record(0, image).substr(1);
  }
  EXPECT_EQ(std::string(train.inputs.bytes.begin(), train.inputs.bytes.end()), pixels);
}

TEST(Cifar, AFileWithoutWholeRecordsIsReported) {
  const Scratch scratch;
  const std::string folder = scratch / "data";
  const auto refusal_with = [&](const std::string& bytes) {
    write_folder(folder);
    replace_file(folder + "/data_batch_4.bin", bytes);
    return error_of<DataError>([&] { load_cifar_folder(folder); });
  };
  const std::string path = "'" + folder + "/data_batch_4.bin' ";
  EXPECT_THAT(
      refusal_with(""), HasSubstr(path + "has 0 bytes, expected a multiple of 3073"));
  EXPECT_THAT(refusal_with(record(1, 1) + "x"), HasSubstr(path + "has 3074 bytes"));
  EXPECT_THAT(
      refusal_with(record(1, 1) + record(10, 1)),
      HasSubstr(path + "has a label of 10, expected 0 to 9"));
  write_folder(folder);
  remove_all(folder + "/test_batch.bin");
  expect_error<DataError>([&] { load_cifar_folder(folder); }, {"test_batch.bin"});
}

}  // namespace tandem::cifar_test
