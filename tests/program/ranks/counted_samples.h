#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/data/npy.h"
#include "tests/program/program.h"

namespace tandem {

/// A data set with which the weights of a run count how often the run has read each
/// sample. In sample i, number i is 1 and the others are 0. The model has a weight per
/// number and one output, which is always less than the target. So with the loss l1,
/// SGD and the learning rate 1, each read of sample i adds 1 to weight i.
class CountedSamples {
 public:
  /// Writes `count` samples to `folder`.
  CountedSamples(std::string folder, int64_t count) : folder_(std::move(folder)) {
    make_directories(folder_);
    std::vector<float> inputs(static_cast<size_t>(count * count));
    for (int64_t i = 0; i < count; ++i) {
      inputs[static_cast<size_t>(i * count + i)] = 1;
    }
    write("train_x", {count, count}, inputs);
    write("train_y", {count, 1}, std::vector<float>(static_cast<size_t>(count), 1e9F));
    write("test_x", {1, count}, inputs);
    write("test_y", {1, 1}, {1e9F});
  }

  /// Returns the arguments of a run that reads the samples and keeps all checkpoints.
  Arguments training() const {
    return {
        "train", "--data",   folder_, "--model",      "simplenet", "--loss",
        "l1",    "--lr",     "1",     "--optimizer",  "sgd",       "--reduction",
        "sum",   "--mean",   "0",     "--std",        "1",         "--precision",
        "fp32",  "--uneven", "join",  "--eval-every", "10000000",  "--keep-checkpoints",
        "0"};
  }

 private:
  void write(
      const std::string& name, const std::vector<int64_t>& shape,
      const std::vector<float>& values) const {
    write_npy(
        folder_ + "/" + name + ".npy", ElementType::float32, shape,
        reinterpret_cast<const uint8_t*>(values.data()));
  }

  const std::string folder_;
};

/// Returns the number that follows `mark` in a file of a checkpoint.
inline int64_t number_after(const std::string& bytes, const std::string& mark) {
  const size_t at = bytes.find(mark);
  EXPECT_NE(at, std::string::npos) << mark;
  return at == std::string::npos ? -1 : std::atoll(bytes.c_str() + at + mark.size());
}

/// Returns the number of reads of each of CountedSamples until a checkpoint.
inline std::vector<int64_t> reads_until(const std::string& checkpoint) {
  const auto bytes = read_file(checkpoint + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto entry = bytes.substr(bytes.find("\"fc.weight\""));
  const auto first = number_after(entry, "\"data_offsets\":[");
  const auto end =
      std::atoll(entry.c_str() + entry.find(',', entry.find("offsets")) + 1);
  std::vector<float> weights(static_cast<size_t>(end - first) / sizeof(float));
  std::memcpy(
      weights.data(), bytes.data() + sizeof header + header + first,
      weights.size() * sizeof(float));
  std::vector<int64_t> reads;
  for (const float weight : weights) {
    // The initial weights are much smaller than 1.
    reads.push_back(std::llround(weight));
  }
  return reads;
}

/// Expects that a run has read each of CountedSamples once in each complete epoch
/// before a checkpoint, and at most once in the epoch of the checkpoint.
inline void expect_samples_read_once(const std::string& checkpoint) {
  const auto training = read_file(checkpoint + "/training.safetensors");
  const auto epoch = number_after(training, "\"epoch\":\"");
  auto reads = reads_until(checkpoint);
  EXPECT_THAT(reads, testing::Each(testing::AnyOf(epoch, epoch + 1))) << checkpoint;
  EXPECT_EQ(
      std::count(reads.begin(), reads.end(), epoch + 1),
      number_after(training, "\"samples_in_epoch\":\""))
      << checkpoint;
}

}  // namespace tandem
