#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Format of the files of write_digits().
enum class DigitsFormat { idx, png, npy, csv };
template <>
struct Choices<DigitsFormat> {
  static constexpr Choice<DigitsFormat> rows[] = {
      {DigitsFormat::idx, "idx", "four IDX files, as MNIST's"},
      {DigitsFormat::png, "png", "PNG files in train/CLASS/ and test/CLASS/"},
      {DigitsFormat::npy, "npy", "train_x.npy, train_y.npy, test_x.npy and test_y.npy"},
      {DigitsFormat::csv, "csv",
       "train.csv and test.csv with the columns label, p0, ..."}};
};

/// Seeds of the training part and the test part of the digits.
constexpr uint64_t kTrainDigitsSeed = 2;
constexpr uint64_t kTestDigitsSeed = 3;

/// Draws digits (digits/digits.h) and writes them to a folder. All formats have the
/// same samples. Writes to a temporary folder first, so that no file appears if the
/// disk is full. Throws DataError if writing fails, or if the folder contains a file or
/// folder of the same name that cannot be replaced.
void write_digits(
    const std::string& folder, int64_t num_train, int64_t num_test,
    DigitsFormat format = DigitsFormat::idx);

}  // namespace tandem
