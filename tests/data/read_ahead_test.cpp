// Reading samples of mapped files ahead.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/mapped_file.h"
#include "tandem/data/loader.h"
#include "tests/data/some_samples.h"
#include "tests/scratch.h"

namespace tandem::read_ahead_test {

TEST(ReadAheadRule, IsOnForSomeBatchesAfterAMajorFault) {
  ReadAheadRule rule(5);
  EXPECT_FALSE(rule.update(5));
  for (int64_t i = 0; i < ReadAheadRule::kBatches; ++i) {
    ASSERT_TRUE(rule.update(6)) << i;
  }
  EXPECT_FALSE(rule.update(6));
  EXPECT_TRUE(rule.update(7));
}

constexpr int64_t kSamples = 10;
constexpr int64_t kSide = 256;

// Removes a file from the page cache.
void evict(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  fsync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

// Returns a data set whose inputs are in a mapped file and not in memory.
Dataset mapped_data(const std::string& path) {
  constexpr auto kBytes = static_cast<size_t>(kSamples * kSide * kSide);
  std::ofstream(path) << std::string(kBytes, 3);
  evict(path);
  const Bytes bytes = map_file(path);
  // As read_npy() does. Otherwise an access reads pages of other samples too.
  madvise(const_cast<uint8_t*>(bytes.data()), kBytes, MADV_RANDOM);
  auto data = dataset_of(
      kSamples, {ElementType::uint8, {1, kSide, kSide}, bytes, true},
      make_samples<uint8_t>({}, kSamples, [](int64_t i) { return i; }));
  data.num_classes = kSamples;
  return data;
}

// Returns whether the first page of a sample is in memory.
bool is_in_memory(const Dataset& data, int64_t sample) {
  unsigned char state = 0;
  mincore(const_cast<uint8_t*>(data.inputs.at(sample)), 1, &state);
  return (state & 1) != 0;
}

bool comes_into_memory(const Dataset& data, int64_t sample) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (!is_in_memory(data, sample) && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return is_in_memory(data, sample);
}

TEST(ReadAhead, BeginsAfterAMajorFault) {
  const Scratch scratch;
  const std::string path = scratch / "pixels";
  const auto data = mapped_data(path);
  if (is_in_memory(data, 0)) {
    GTEST_SKIP() << "the file system keeps '" << path
                 << "' in memory; TMPDIR=/var/tmp scripts/test -R ReadAhead";
  }
  LoaderOptions options;
  options.batch_size = 1;
  options.micro_batches = 2;
  options.mean = {0};
  options.std = {1};
  Loader loader(data, in_order(), options);
  const auto read = [&](int64_t count) {
    Batch batch;
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(loader.next(batch));
    }
  };
  loader.seek(0);
  EXPECT_TRUE(comes_into_memory(data, 0));
  EXPECT_TRUE(comes_into_memory(data, 1));
  read(2);
  EXPECT_FALSE(is_in_memory(data, 2)) << "no page was missing";
  read(4);
  EXPECT_TRUE(comes_into_memory(data, 6));
  EXPECT_TRUE(comes_into_memory(data, 7));
  EXPECT_FALSE(is_in_memory(data, 8));
}

}  // namespace tandem::read_ahead_test
