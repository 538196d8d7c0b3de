#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/bytes.h"
#include "tandem/config/options/setting.h"

namespace tandem {

/// Type of the numbers of a data set, stored in the byte order of the host.
enum class ElementType : uint8_t { uint8, float32, int64 };
template <>
struct Choices<ElementType> {
  static constexpr Choice<ElementType> rows[] = {
      {ElementType::uint8, "uint8"},
      {ElementType::float32, "float32"},
      {ElementType::int64, "int64"}};
};

/// Returns the number of bytes of an element.
constexpr size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return sizeof(float);
    case ElementType::int64:
      return sizeof(int64_t);
    default:
      return 1;
  }
}

/// The inputs or the targets of a data set, in the order of the samples. Copies share
/// the immutable bytes.
struct Samples {
  ElementType type = ElementType::uint8;
  // Sizes of one sample, such as {channels, height, width}; {} for a single number.
  std::vector<int64_t> shape;
  // May contain more samples than Dataset::size.
  Bytes bytes;
  // True if `bytes` are the pages of a mapped file, which processes share and which may
  // be larger than main memory.
  bool is_mapped = false;

  /// Returns the number of elements of a sample.
  int64_t numel() const {
    int64_t numel = 1;
    for (const int64_t size : shape) {
      numel *= size;
    }
    return numel;
  }
  /// Returns the number of bytes of a sample.
  int64_t sample_bytes() const {
    return numel() * static_cast<int64_t>(size_of(type));
  }
  /// Returns the number of bytes of `count` samples.
  int64_t bytes_of(int64_t count) const {
    return count * sample_bytes();
  }
  /// Returns the first byte of the sample in this place. The place must be valid.
  const uint8_t* at(int64_t place) const {
    return bytes.data() + place * sample_bytes();
  }
  /// Returns element number `index`, counted over all samples. The type must not be
  /// float32.
  int64_t integer(int64_t index) const {
    return type == ElementType::int64
               ? reinterpret_cast<const int64_t*>(bytes.data())[index]
               : bytes[static_cast<size_t>(index)];
  }
};

/// Hashes of the first Dataset::size samples of a data set: SHA-256 as hex digits. If
/// more than 4 MiB of samples are mapped, the hash covers only their number of bytes
/// and 1,024 blocks of 4 KiB at equal distances. Reading a large file completely would
/// take minutes.
struct DataHashes {
  std::string inputs;
  std::string targets;
};

/// Samples in memory: an input and a target each. Copies share the immutable bytes, for
/// example between thread ranks. prepared_data.h shares them between process ranks.
///
/// The types define how a loader makes batches (data/loader.h):
///
/// | inputs            | batch                                                      |
/// | ----------------- | ---------------------------------------------------------- |
/// | images of uint8   | float32, divided by 255 and normalized                     |
/// | other uint8       | float32, normalized                                        |
/// | float32           | float32, normalized                                        |
/// | int64, or tokens  | int64, unchanged                                           |
///
/// | targets           | batch                                                      |
/// | ----------------- | ---------------------------------------------------------- |
/// | uint8 or int64    | int64: the class of a sample (shape {}), or one per position |
/// | float32           | float32, unchanged or normalized (LoaderOptions)           |
struct Dataset {
  // Name or path, for messages and config.toml.
  std::string name = "unnamed";
  // True if load_dataset(name) returns the same samples. load_dataset() sets it. Set it
  // to false if you change the samples of a copy.
  bool is_loadable = false;
  int64_t size = 0;
  Samples inputs;
  // Has no bytes if the samples have no targets (load_inputs()).
  Samples targets;
  // True: inputs of the type uint8 are indices, such as the bytes of a text.
  bool tokens = false;
  // True: the samples are consecutive parts of one sequence, such as a text, so that a
  // sample can start at any element (LoaderOptions::random_starts).
  bool is_sequence = false;
  // If targets are classes, number of classes; each class is from 0 to num_classes - 1.
  // If targets are values, number of values of a sample's target.
  int64_t num_classes = 0;
  std::vector<std::string> class_names;
  // Paths of the image files, for predictions; path i belongs to place i (place_of()).
  // Null if they were not requested (DataRequest::keeps_files).
  std::shared_ptr<const std::vector<std::string>> files;
  // Columns of a table as text (csv.h), for other tables with the same columns; "" for
  // other data.
  std::string columns;
  // Normalization that load_dataset() measured; empty if it measured none.
  std::vector<double> mean;
  std::vector<double> std;
  std::vector<double> target_mean;
  std::vector<double> target_std;

  // Number of shares into which the data were scattered (train/scatter.h), and index of
  // the first sample in this rank's share. `size` counts the samples of all shares;
  // `inputs` and `targets` contain one share. Only a sampler with `num_shares` blocks
  // can read scattered data.
  int64_t num_shares = 1;
  int64_t first_held = 0;
  // Places of the samples in `inputs` and `targets`; null: sample i is in place i -
  // first_held.
  std::shared_ptr<const std::vector<int64_t>> places;

  // Hashes of the whole data set, even if this object contains only a share; empty if
  // they were not computed.
  DataHashes hashes;

  /// Returns the place of a sample in `inputs` and `targets`.
  int64_t place_of(int64_t sample) const {
    return places ? (*places)[static_cast<size_t>(sample)] : sample - first_held;
  }
  /// Returns whether targets are classes, not values.
  bool has_classes() const {
    return targets.type != ElementType::float32;
  }
  /// Returns whether inputs are indices, not numbers.
  bool has_indices() const {
    return tokens || inputs.type == ElementType::int64;
  }
  /// Returns whether inputs are images of channels x height x width bytes.
  bool has_images() const {
    return inputs.type == ElementType::uint8 && inputs.shape.size() == 3 && !tokens;
  }
  /// Returns whether inputs of uint8 are numbers, neither images nor indices.
  bool has_byte_numbers() const {
    return inputs.type == ElementType::uint8 && !has_images() && !tokens;
  }
};

/// A part of a data set.
enum class DataPart { test, train, validation };
template <>
struct Choices<DataPart> {
  static constexpr Choice<DataPart> rows[] = {
      {DataPart::test, "test"},
      {DataPart::train, "train"},
      {DataPart::validation, "validation"}};
};

/// Parts of a data set.
struct DatasetSplits {
  Dataset train;
  Dataset test;
  // Validation part of the files, or samples of the training part that are held out
  // (DataOptions::validation). The size is 0 if there is no validation part.
  Dataset validation = {};
};
/// The parts, to loop over all of them.
constexpr Dataset DatasetSplits::*kDatasetParts[] = {
    &DatasetSplits::train, &DatasetSplits::test, &DatasetSplits::validation};

/// Returns the first `limit` samples; all samples if limit is 0.
[[nodiscard]] Dataset first_samples(Dataset data, int64_t limit);

/// Returns the hashes in `data`, or computes them from its bytes if they are empty.
[[nodiscard]] DataHashes hashes_of(const Dataset& data);

/// Throws DataError if a target is a number outside of 0 to 1, the range that the loss
/// bce requires. Checks the samples that this process has in memory.
void check_probabilities(const Dataset& data);

/// Throws ConfigError if `inputs` or `targets` have fewer bytes than the sizes require,
/// or the name or a class name is not UTF-8.
/// Also throws it if a target is a class that is neither from 0 to `num_classes` - 1
/// nor `ignored`. Throws DataError if a target is a number that is not finite.
void check_samples(
    const Dataset& data, int64_t num_classes, std::optional<int64_t> ignored = {});

/// Throws DataError, because an input of a sample is NaN or infinite.
[[noreturn]] void fail_not_finite(const Dataset& data, int64_t sample);

/// Returns a shape for messages, such as "1x28x28", or "number" for {}.
[[nodiscard]] std::string shape_text(const std::vector<int64_t>& shape);

/// Renumbers the classes of a data set: each class gets the index of its name in
/// `names`. Does nothing if targets are values, if the data set has no class names, or
/// if its class names equal `names`.
///
/// `owner` is the owner of `names` for errors, such as "the training part". Throws
/// DataError if a class of the data set is not in `names`.
void renumber_classes(
    Dataset& data, const std::vector<std::string>& names, const std::string& owner);

}  // namespace tandem
