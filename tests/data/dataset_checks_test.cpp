// Checks and hashes of samples in memory or in mapped files.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/mapped_file.h"
#include "tandem/base/sha256.h"
#include "tests/core/expect.h"
#include "tests/core/most_memory.h"
#include "tests/data/some_samples.h"
#include "tests/scratch.h"

namespace tandem::dataset_checks_test {

using testing::HasSubstr;

constexpr size_t kBlock = 4'096;

Dataset with_targets(Samples targets, int64_t size) {
  const auto zero = [](int64_t) { return 0; };
  auto data =
      dataset_of(size, make_samples<float>({2}, size, zero), std::move(targets));
  data.name = "table";
  return data;
}

std::string refusal(
    const Dataset& data, int64_t num_classes, std::optional<int64_t> ignored = {}) {
  return error_of<ConfigError>([&] { check_samples(data, num_classes, ignored); });
}

TEST(CheckSamples, ClassesAreLessThanTheirNumber) {
  const auto data = with_targets(samples_of<int64_t>({}, {0, 299, 300, 2}), 4);
  EXPECT_NO_THROW(check_samples(data, 301));
  EXPECT_THAT(
      refusal(data, 300),
      HasSubstr("label 2 of 'table' is 300, expected less than 300"));
  EXPECT_THAT(refusal(data, 299), HasSubstr("label 1 of 'table' is 299"));
  const auto huge = with_targets(samples_of<int64_t>({}, {int64_t{1} << 40}), 1);
  EXPECT_THAT(refusal(huge, 300), HasSubstr("is 1099511627776"));
  const auto bytes = with_targets(samples_of<uint8_t>({}, {0, 255}), 2);
  EXPECT_NO_THROW(check_samples(bytes, 256));
  EXPECT_THAT(refusal(bytes, 255), HasSubstr("label 1 of 'table' is 255"));
}

TEST(CheckSamples, OnlyTheIgnoredClassMayBeNegativeOrTooLarge) {
  for (const int64_t other : {-100, -1, 255}) {
    const auto data = with_targets(samples_of<int64_t>({}, {3, other, 2}), 3);
    EXPECT_NO_THROW(check_samples(data, 4, other));
    for (const std::optional<int64_t> ignored :
         {std::optional<int64_t>(), std::optional<int64_t>(-2)}) {
      EXPECT_THAT(
          refusal(data, 4, ignored),
          HasSubstr("label 1 of 'table' is " + std::to_string(other)));
    }
  }
}

TEST(CheckSamples, EveryPositionIsChecked) {
  const auto data =
      with_targets(samples_of<int64_t>({3}, {0, 1, 2, 0, -100, 1, 2, 2, 4}), 3);
  EXPECT_NO_THROW(check_samples(data, 5, -100));
  EXPECT_THAT(refusal(data, 4, -100), HasSubstr("label 2 of 'table' is 4"));
  EXPECT_THAT(refusal(data, 5), HasSubstr("label 1 of 'table' is -100"));
}

TEST(CheckSamples, ValuesAreNotClasses) {
  EXPECT_NO_THROW(
      check_samples(with_targets(samples_of<float>({1}, {-1, 1e9F}), 2), 1));
}

TEST(CheckSamples, BytesAreComparedWithTheSizes) {
  auto data = with_targets(samples_of<int64_t>({}, {0, 1, 2}), 3);
  data.size = 4;
  EXPECT_THAT(
      refusal(data, 3),
      HasSubstr("inputs of 'table' have 24 bytes, expected 32 for 4 samples"));
  data.inputs = samples_of<float>({2}, std::vector<float>(8));
  EXPECT_THAT(
      refusal(data, 3),
      HasSubstr("targets of 'table' have 24 bytes, expected 32 for 4 samples"));
}

TEST(CheckSamples, NamesAreUtf8) {
  auto data = with_targets(samples_of<int64_t>({}, {0, 1}), 2);
  data.class_names = {"Kiel", "K\xf6ln"};
  EXPECT_THAT(
      refusal(data, 2),
      HasSubstr("name 1 of class_names of 'table' is 'K\\xf6ln', with the byte f6 at "
                "position 2, expected UTF-8"));
  data.class_names[1] = "K\xc3\xb6ln";
  EXPECT_NO_THROW(check_samples(data, 2));
}

// Otherwise, predict and eval would refuse the checkpoint.
TEST(CheckSamples, ClassNamesHaveNoLineBreaks) {
  auto data = with_targets(samples_of<int64_t>({}, {0, 1}), 2);
  data.class_names = {"Kiel", "Ulm\nBonn"};
  EXPECT_THAT(
      refusal(data, 2),
      HasSubstr("name 1 of class_names of 'table' is 'Ulm\\x0aBonn', expected a name "
                "without line breaks; rename the class"));
}

TEST(CheckSamples, OnlyTheSamplesOfThePartAreChecked) {
  auto data = with_targets(samples_of<int64_t>({}, {0, 9, 1, 9, 2}), 3);
  data.inputs = samples_of<float>({2}, std::vector<float>(10));
  data.places =
      std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{0, 2, 4});
  EXPECT_NO_THROW(check_samples(data, 3));
  EXPECT_THAT(refusal(data, 2), HasSubstr("label 2 of 'table' is 2"));
  data.places =
      std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{0, 2, 5});
  EXPECT_THAT(refusal(data, 3), HasSubstr("expected 48 for 6 samples"));
}

// A file of mapped samples.
class MappedHash : public testing::Test {
 protected:
  void write(const std::vector<uint8_t>& bytes) const {
    replace_file(path_, std::string(bytes.begin(), bytes.end()));
  }

  void set_byte(size_t at, uint8_t value) const {
    const int file = open(path_.c_str(), O_WRONLY);
    ASSERT_EQ(pwrite(file, &value, 1, static_cast<off_t>(at)), 1);
    close(file);
  }

  Dataset dataset(int64_t sample_bytes = 1'000) const {
    const Bytes bytes = map_file(path_);
    const auto size = static_cast<int64_t>(bytes.size()) / sample_bytes;
    return dataset_of(
        size, {ElementType::uint8, {sample_bytes}, bytes, true},
        samples_of<uint8_t>({}, std::vector<uint8_t>(static_cast<size_t>(size))));
  }

  std::string hash(int64_t sample_bytes = 1'000) const {
    return hashes_of(dataset(sample_bytes)).inputs;
  }

  // Returns whether the hash differs while a byte has another value.
  bool depends_on(size_t at) const {
    const std::string before = hash();
    set_byte(at, 77);
    const std::string after = hash();
    set_byte(at, 0);
    EXPECT_EQ(hash(), before);
    return after != before;
  }

  const Scratch scratch_;
  const std::string path_ = scratch_ / "file";
};

TEST_F(MappedHash, IsTheSha256OfASmallFile) {
  std::vector<uint8_t> bytes(9'000);
  bytes[8'999] = 3;
  write(bytes);
  EXPECT_EQ(hash(), sha256_hex(bytes.data(), bytes.size()));
}

// 8,000,000 bytes: a block begins every (8,000,000 - 4,096) / 1,023 = 7,816 bytes.
TEST_F(MappedHash, DependsOnTheSizeAndOnBlocksOfALargeFile) {
  write(std::vector<uint8_t>(8'000'000));
  for (const size_t sampled :
       {size_t{0}, kBlock - 1, size_t{7'816}, size_t{500 * 7'816 + 100},
        size_t{7'999'999}}) {
    EXPECT_TRUE(depends_on(sampled)) << sampled;
  }
  EXPECT_FALSE(depends_on(6'000));
  const std::string before = hash();
  ASSERT_EQ(truncate(path_.c_str(), 8'001'000), 0);
  EXPECT_NE(hash(), before);
  auto fewer = dataset();
  fewer.size -= 1;
  EXPECT_EQ(hashes_of(fewer).inputs, before);
}

TEST_F(MappedHash, ReadsLittleOfALargeFile) {
  write({1});
  ASSERT_EQ(truncate(path_.c_str(), 100'000'000'000), 0);
  const int64_t before = most_memory_kb();
  const std::string zeros = hash(1'000'000'000);
  EXPECT_LT(most_memory_kb() - before, 64 * 1'024);
  set_byte(99'999'999'999, 1);
  EXPECT_NE(hash(1'000'000'000), zeros);
}

// The part has every second sample, so its bytes are not consecutive in the file.
TEST_F(MappedHash, OfAPartEqualsTheHashOfItsSamples) {
  std::vector<uint8_t> bytes(10'000);
  std::vector<uint8_t> chosen;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i / 700 + i % 13);
    if (i / 1'000 % 2 == 1) {
      chosen.push_back(bytes[i]);
    }
  }
  write(bytes);
  auto part = dataset();
  part.places =
      std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{1, 3, 5, 7, 9});
  part.size = 5;
  EXPECT_EQ(hashes_of(part).inputs, sha256_hex(chosen.data(), chosen.size()));
}

TEST_F(MappedHash, OfALargePartDependsOnItsSamplesOnly) {
  write(std::vector<uint8_t>(10'000'000));
  std::vector<int64_t> places;
  for (int64_t i = 1; i < 10'000; i += 2) {
    places.push_back(i);
  }
  const auto hash_of_part = [&] {
    auto part = dataset();
    part.size = 5'000;
    part.places = std::make_shared<const std::vector<int64_t>>(places);
    return hashes_of(part).inputs;
  };
  const std::string before = hash_of_part();
  set_byte(0, 1);
  set_byte(9'998'999, 1);
  EXPECT_EQ(hash_of_part(), before);
  set_byte(9'999'999, 1);
  const std::string last = hash_of_part();
  EXPECT_NE(last, before);
  set_byte(1'000, 1);
  EXPECT_NE(hash_of_part(), last);
}

}  // namespace tandem::dataset_checks_test
