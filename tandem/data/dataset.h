#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/base/deadline.h"
#include "tandem/data/bytes.h"

namespace tandem {

/// SHA-256 of a data set's first `size` images, and of as many labels, as hex digits.
struct DataHashes {
  std::string images;
  std::string labels;
};

/// Labeled images, as bytes in memory. Copies share the immutable memory, so thread
/// ranks use the same memory; process ranks do too, through prepared_data.h.
struct Dataset {
  // Name or path, for messages and config.toml.
  std::string name = "unnamed";
  // True if load_dataset(name) returns the same samples. The loaders set it; clear it
  // in a copy that you change.
  bool is_loadable = false;
  int64_t size = 0;
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t num_classes = 0;
  // size x channels x height x width bytes.
  Bytes pixels;
  // size bytes, each less than num_classes.
  Bytes labels;
  std::vector<std::string> class_names;

  // For data that was scattered (train/scatter.h): `size` counts all shares, and
  // `pixels` and `labels` hold one share, from sample `first_held` on. Only a sampler
  // with as many blocks reads it.
  int64_t num_shares = 1;
  int64_t first_held = 0;

  // Hashes of the whole data set, also in a share; empty if they were not computed.
  DataHashes hashes;

  /// Returns the bytes of an image.
  int64_t image_bytes() const {
    return channels * height * width;
  }
};

/// Training and test part of a data set.
struct DatasetSplits {
  Dataset train;
  Dataset test;
};

/// A named data set, with its help text.
struct DatasetEntry {
  const char* name;
  const char* help;
  std::function<DatasetSplits(const Deadline&)> load;
};
/// Returns all named data sets.
const std::vector<DatasetEntry>& dataset_table();

/// Loads a named data set, or a folder of IDX files such as MNIST's or Fashion-MNIST's
/// (gzip or plain), or of CIFAR-10's binary files. `limit` > 0 keeps only the first
/// `limit` samples of the training part, and of the test part.
///
/// Throws ConfigError for an unknown name, DataError if files are missing or damaged,
/// or if another process locks them until `deadline`.
[[nodiscard]] DatasetSplits load_dataset(
    const std::string& name_or_folder, int64_t limit = 0,
    const Deadline& deadline = Deadline(std::chrono::minutes(5)));

/// Returns the first `limit` samples; all samples if limit is 0.
[[nodiscard]] Dataset first_samples(Dataset data, int64_t limit);

/// Returns the value of `data` that a run records: the name, or "custom:NAME" for a
/// data set that only its own program has. load_dataset() rejects "custom:NAME".
[[nodiscard]] std::string recorded_name(const Dataset& data);

/// Returns the data set's `hashes`, computed from its bytes if they are empty.
[[nodiscard]] DataHashes hashes_of(const Dataset& data);

/// Throws ConfigError if there are fewer bytes than the sizes require, or if a label is
/// not less than `num_classes`.
void check_samples(const Dataset& data, int64_t num_classes);

/// Loads the four IDX files of a folder. Throws DataError.
[[nodiscard]] DatasetSplits load_idx_folder(const std::string& folder);

/// Draws digits (digits/digits.h) and writes them as four IDX files: either all or
/// none.
void write_digits(const std::string& folder, int64_t num_train, int64_t num_test);

}  // namespace tandem
