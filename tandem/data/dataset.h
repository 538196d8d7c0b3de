#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/data/bytes.h"

namespace tandem {

/// SHA-256 of the first Dataset::size images of a data set, and of their labels, as hex
/// digits.
struct DataHashes {
  std::string images;
  std::string labels;
};

/// Labeled images, as bytes in memory. Copies share the immutable bytes, for example
/// between thread ranks. prepared_data.h shares them between process ranks.
struct Dataset {
  // Name or path, for messages and config.toml.
  std::string name = "unnamed";
  // True if load_dataset(name) returns the same samples. load_dataset() sets it. Set it
  // to false if you change the samples of a copy.
  bool is_loadable = false;
  int64_t size = 0;
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t num_classes = 0;
  // Images: samples x channels x height x width bytes. May contain more samples than
  // `size` (first_samples()).
  Bytes pixels;
  // Class of each image: one byte per sample, less than num_classes.
  Bytes labels;
  std::vector<std::string> class_names;

  // Number of shares into which the data were scattered (train/scatter.h), and index of
  // the first sample in this rank's share. `size` counts the samples of all shares;
  // `pixels` and `labels` contain one share. Only a sampler with `num_shares` blocks
  // can read scattered data.
  int64_t num_shares = 1;
  int64_t first_held = 0;

  // Hashes of the whole data set, even if this object contains only a share; empty if
  // they were not computed.
  DataHashes hashes;

  /// Returns the number of bytes of an image.
  int64_t image_bytes() const {
    return channels * height * width;
  }
};

/// Training and test part of a data set.
struct DatasetSplits {
  Dataset train;
  Dataset test;
};

/// A named data set, with its help text and the function that loads it.
struct DatasetEntry {
  const char* name;
  const char* help;
  std::function<DatasetSplits(const Deadline&)> load;
};
/// Returns all named data sets.
const std::vector<DatasetEntry>& dataset_table();

/// Loads a named data set, or a folder of IDX files such as MNIST's (gzip or plain), or
/// a folder of CIFAR-10's binary files. If `limit` is greater than 0, keeps only the
/// first `limit` samples of the training part and of the test part.
///
/// Throws ConfigError for an unknown name. Throws DataError if files are missing or
/// damaged, or if another process still locks them at `deadline`.
[[nodiscard]] DatasetSplits load_dataset(
    const std::string& name_or_folder, int64_t limit = 0,
    const Deadline& deadline = Deadline(std::chrono::minutes(5)));

/// Loads an IDX file of images, gzip or plain, as a data set without labels: `labels`
/// is empty. Throws the errors of read_idx() (data/idx.h).
[[nodiscard]] Dataset load_images(const std::string& path);

/// Returns the first `limit` samples; all samples if limit is 0.
[[nodiscard]] Dataset first_samples(Dataset data, int64_t limit);

/// Returns the value of `data` in a run's config.toml: the name if load_dataset() can
/// load the data set, otherwise "custom:NAME". load_dataset() rejects "custom:NAME".
[[nodiscard]] std::string recorded_name(const Dataset& data);

/// Returns the data set's `hashes`, computed from its bytes if they are empty.
[[nodiscard]] DataHashes hashes_of(const Dataset& data);

/// Throws ConfigError if `pixels` or `labels` have fewer bytes than the sizes require,
/// or if a label is not less than `num_classes`.
void check_samples(const Dataset& data, int64_t num_classes);

/// Loads the four IDX files of a folder. Throws DataError if a file is missing or
/// damaged, or if the files do not match.
[[nodiscard]] DatasetSplits load_idx_folder(const std::string& folder);

/// Draws digits (digits/digits.h) and writes four IDX files to a folder: either all or
/// none.
void write_digits(const std::string& folder, int64_t num_train, int64_t num_test);

}  // namespace tandem
