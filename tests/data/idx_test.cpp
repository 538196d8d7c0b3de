#include "tandem/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/data/load_dataset.h"
#include "tests/core/expect.h"
#include "tests/core/memory_limit.h"
#include "tests/core/most_memory.h"
#include "tests/scratch.h"

namespace tandem::idx_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string bytes(const std::vector<int>& values) {
  return {values.begin(), values.end()};
}

void write_gzip(const std::string& path, const std::string& content) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  gzclose(file);
}

// 2 x 3 x 2, counting from 20.
const std::string kGood = bytes({0, 0, 8,  3,  0,  0,  0,  2,  0,  0,  0,  3,  0,  0,
                                 0, 2, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31});

TEST(Idx, ReadsTheFormat) {
  const Scratch scratch;
  replace_file(scratch / "plain", kGood);
  write_gzip(scratch / "packed", kGood);
  for (const char* name : {"plain", "packed"}) {
    const IdxArray array = read_idx(scratch / name, 3);
    EXPECT_EQ(array.dims, (std::vector<int64_t>{2, 3, 2}));
    std::vector<uint8_t> counting(12);
    std::iota(counting.begin(), counting.end(), uint8_t{20});
    EXPECT_EQ(array.values, counting);
  }
  // Bytes above 127, and a dimension that needs two.
  IdxArray large{{1, 258}, std::vector<uint8_t>(258, 0xFE)};
  write_idx(scratch / "large", large);
  EXPECT_EQ(read_idx(scratch / "large", 2).dims, large.dims);
  EXPECT_EQ(read_idx(scratch / "large", 2).values, large.values);
}

TEST(Idx, RoundTripsPlainAndCompressed) {
  const Scratch scratch;
  IdxArray array{{300, 40, 100}, std::vector<uint8_t>(300 * 40 * 100)};  // > 1 MiB
  for (size_t i = 0; i < array.values.size(); ++i) {
    array.values[i] = static_cast<uint8_t>(i * i / 7);
  }
  const std::vector<std::pair<std::string, std::string>> names = {
      {"images", bytes({0, 0, 8, 3})}, {"images.gz", bytes({0x1f, 0x8b})}};
  for (const auto& [name, magic] : names) {
    write_idx(scratch / name, array);
    EXPECT_THAT(read_file(scratch / name), StartsWith(magic));
    const IdxArray back = read_idx(scratch / name, 3);
    EXPECT_EQ(back.dims, array.dims);
    EXPECT_EQ(back.values, array.values);
  }
  expect_error<DataError>(
      [&] { write_idx(scratch / "no/such/folder", array); }, {"no/such/folder"});
}

TEST(Idx, DamagedFilesAreReportedWithTheError) {
  struct Case {
    std::string content;
    size_t num_dims;
    std::string said;
  };
  const std::string header = kGood.substr(0, 16);
  const std::vector<Case> cases = {
      {"", 3, "too short"},
      {bytes({0, 0, 8}), 3, "too short"},
      {"<html>404</html>", 3, "wrong magic"},
      {bytes({1, 0, 8, 3}) + kGood.substr(4), 3, "wrong magic"},
      {bytes({0, 1, 8, 3}) + kGood.substr(4), 3, "wrong magic"},
      {bytes({0, 0, 13, 3}) + kGood.substr(4), 3, "wrong magic"},  // float32
      {kGood, 1, "3 dimensions, expected 1"},
      {header.substr(0, 4), 3, "inside its header"},
      {header.substr(0, 15), 3, "inside its header"},
      {header, 3, "after 0 of the 12 bytes"},
      {kGood.substr(0, 27), 3, "after 11 of the 12 bytes"},
      {kGood + "x", 3, "continues after the 12 bytes"},
      {bytes({0, 0, 8, 1, 0, 0, 0, 0}), 1, "dimension of 0"}};
  const Scratch scratch;
  for (const auto& [content, num_dims, said] : cases) {
    SCOPED_TRACE(said);
    replace_file(scratch / "plain", content);
    write_gzip(scratch / "packed", content);
    for (const char* name : {"plain", "packed"}) {
      expect_error<DataError>(
          [&, count = num_dims] { read_idx(scratch / name, count); },
          {"'" + (scratch / name) + "'", said});
    }
  }
}

TEST(Idx, TruncatedGzipIsDamaged) {
  const Scratch scratch;
  std::string noise = bytes({0, 0, 8, 1, 0, 0, 0x03, 0xe8});
  for (int i = 0; i < 1000; ++i) {
    noise += static_cast<char>(i * i * 31 / 7);  // does not compress
  }
  write_gzip(scratch / "whole", noise);
  const std::string whole = read_file(scratch / "whole");
  ASSERT_EQ(read_idx(scratch / "whole", 1).values.size(), 1000u);
  // In the header, the data, and the checksum after it.
  const std::vector<size_t> lengths = {5,
                                       11,
                                       40,
                                       whole.size() / 2,
                                       whole.size() - 9,
                                       whole.size() - 8,
                                       whole.size() - 1};
  for (const size_t length : lengths) {
    replace_file(scratch / "torn", whole.substr(0, length));
    EXPECT_THAT(
        error_of<DataError>([&] { read_idx(scratch / "torn", 1); }),
        AllOf(HasSubstr("torn'"), HasSubstr("damaged")))
        << length << " of " << whole.size();
  }
}

TEST(Idx, GzipWithAFlippedBitIsDamaged) {
  const Scratch scratch;
  write_gzip(scratch / "whole", kGood);
  const std::string whole = read_file(scratch / "whole");
  for (const size_t from_end : {size_t{6}, size_t{2}}) {  // checksum, length
    std::string flipped = whole;
    flipped[whole.size() - from_end] ^= 4;
    replace_file(scratch / "flipped", flipped);
    expect_error<DataError>(
        [&] { read_idx(scratch / "flipped", 3); }, {"flipped'", "damaged"});
  }
}

TEST(Idx, ExtraBytesAfterGzipAreRejected) {
  const Scratch scratch;
  write_gzip(scratch / "whole", kGood);
  const std::string whole = read_file(scratch / "whole");
  for (const std::string& behind :
       {std::string("x"), std::string(3, '\0'), std::string("\x1f"), whole.substr(0, 5),
        kGood}) {
    replace_file(scratch / "longer", whole + behind);
    expect_error<DataError>(
        [&] { read_idx(scratch / "longer", 3); }, {"longer'", "damaged"});
  }
}

TEST(Idx, AGzipOfSeveralMembersIsOneFile) {
  const Scratch scratch;
  std::string members;
  for (const size_t at : {size_t{0}, size_t{10}, size_t{20}}) {
    write_gzip(scratch / "member", kGood.substr(at, at < 20 ? 10 : kGood.size()));
    members += read_file(scratch / "member");
  }
  replace_file(scratch / "members", members);
  const IdxArray array = read_idx(scratch / "members", 3);
  EXPECT_EQ(array.dims, (std::vector<int64_t>{2, 3, 2}));
  EXPECT_EQ(std::string(array.values.begin(), array.values.end()), kGood.substr(16));
}

TEST(Idx, AHeaderWithLargeSizesAllocatesNoMemory) {
  const Scratch scratch;
  const int64_t before = most_memory_kb();
  // 64 GB, which is plausible; then more than any file contains, also as a product.
  replace_file(
      scratch / "large",
      bytes({0, 0, 8, 3, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 16, 1, 2, 3}));
  expect_error<DataError>(
      [&] { read_idx(scratch / "large", 3); }, {"after 3 of the 68717379600 bytes"});
  replace_file(
      scratch / "absurd", bytes(
                              {0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                               0xff, 0xff, 0xff, 0xff, 0xff, 1}));
  expect_error<DataError>(
      [&] { read_idx(scratch / "absurd", 3); }, {"absurd'", "dimension of 4294967295"});
  // 4 GB, which the last bytes of the gzip file also declare.
  write_gzip(
      scratch / "packed",
      bytes({0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 1, 2, 3}));
  std::string packed = read_file(scratch / "packed");
  packed.replace(packed.size() - 4, 4, bytes({0x11, 0, 0xfe, 0xff}));
  replace_file(scratch / "packed", packed);
  expect_error<DataError>(
      [&] { read_idx(scratch / "packed", 3); }, {"packed'", "damaged"});
  EXPECT_LT(most_memory_kb() - before, 32 * 1024);
}

TEST(Idx, OfMoreThanHalfOfTheFreeMemoryIsRejected) {
  constexpr size_t kSize = size_t{64} << 20;
  std::string file = bytes({0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 4, 0, 0, 1, 0, 0});
  file.resize(file.size() + kSize);
  const auto refusal = [&](size_t room) {
    const MemoryLimit limit(room);
    return error_of<ConfigError>([&] { parse_idx(file, "images", 3); });
  };
  expect_parts(
      refusal(kSize * 3 / 2),
      {"'images' has 67108864 bytes, more than half of the free memory", "--data"});
  EXPECT_EQ(refusal(kSize * 4), "(no error)");
}

// --- folders ---

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

TEST(IdxFolder, HasATrainingAndATestPart) {
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

TEST(IdxFolder, MayBeInTheRootOfTorchvision) {
  const Scratch scratch;
  write_folder(scratch / "root/MNIST/raw");
  for (const char* name : {"root", "root/MNIST", "root/MNIST/raw"}) {
    const DatasetSplits splits = load_dataset(scratch / name);
    EXPECT_EQ(splits.train.size, 4) << name;
    EXPECT_EQ(splits.train.name, scratch / name);
  }
  write_folder(scratch / "root/FashionMNIST/raw");
  expect_error<DataError>(
      [&] { return load_dataset(scratch / "root"); },
      {"has the data sets", "root/MNIST/raw", "root/FashionMNIST/raw"});
}

TEST(IdxFolder, MayHaveTheNamesOfKaggle) {
  const Scratch scratch;
  const std::string folder = scratch / "data";
  write_folder(folder);
  for (const auto& name : list_directory(folder)) {
    std::string with_point = name;
    with_point.replace(name.find("-idx"), 1, ".");
    std::filesystem::rename(folder + "/" + name, folder + "/" + with_point);
    make_directories(folder + "/" + name);
  }
  EXPECT_EQ(load_dataset(folder).train.size, 4);
}

TEST(IdxFolder, PartsThatDoNotMatchAreReported) {
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

  write_folder(folder);
  write_idx(folder + kTestLabels, labels({3, 0, 200}));
  expect_error<DataError>(
      [&] { return load_idx_folder(folder); },
      {"a test label is 200, expected at most 5"});
}

}  // namespace tandem::idx_test
