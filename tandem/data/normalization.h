#pragma once

#include <cstdint>
#include <vector>

#include "tandem/config/options/data_options.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Mean and standard deviation of each channel or column: one number, or one for each
/// element of the first size of a sample's shape.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;
};

/// Number of bytes of inputs above which only a part is measured.
constexpr int64_t kMeasuredBytes = 1 << 30;

/// Measures the mean and standard deviation of a data set's samples. Samples with three
/// sizes have one mean per channel, and float32 samples with one size have one mean per
/// column. Other samples have one mean of all numbers. A standard deviation of 0
/// becomes 1. Indices have the mean 0 and the standard deviation 1.
///
/// If the inputs have more than `most_bytes`, measures about 1,024 blocks of samples at
/// equal distances, which together have this size. The result does not depend on
/// whether the inputs are in memory or in a mapped file. Throws DataError if a number
/// is not finite.
[[nodiscard]] Normalization measure_normalization(
    const Dataset& data, int64_t most_bytes = kMeasuredBytes);

/// Measures the mean and standard deviation of each column of the targets, like
/// measure_normalization(). Throws ConfigError if targets are classes.
[[nodiscard]] Normalization measure_targets(const Dataset& data);

/// Replaces the words of DataOptions::mean and std by numbers. These are Dataset::mean
/// and std if load_dataset() measured them. Otherwise they are the numbers of MNIST if
/// the samples are images and neither word is "auto", or the results of
/// measure_normalization(). Replaces the words of target_mean and target_std likewise,
/// by the results of measure_targets().
void settle_normalization(DataOptions& options, const Dataset& train);

}  // namespace tandem
