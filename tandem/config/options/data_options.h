#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/config/options/channel_values.h"
#include "tandem/config/options/setting.h"

namespace tandem {

/// Handling of samples that cannot be divided evenly among ranks.
enum class Uneven { pad, drop, join, error };
template <>
struct Choices<Uneven> {
  static constexpr Choice<Uneven> rows[] = {
      {Uneven::pad, "pad", "repeat some samples"},
      {Uneven::drop, "drop", "leave some samples out"},
      {Uneven::join, "join", "use each sample once; ranks without samples take part"},
      {Uneven::error, "error", "end with an error"}};
};

/// Distribution of samples to ranks.
enum class Share { sampler, scatter };
template <>
struct Choices<Share> {
  static constexpr Choice<Share> rows[] = {
      {Share::sampler, "sampler", "each rank reads the files"},
      {Share::scatter, "scatter",
       "rank 0 reads the files and sends every rank an equal random share"}};
};

/// Samples of a run, their order and normalization.
struct DataOptions {
  // Value of sampler_seed for which the sampler uses the value of `seed`.
  static constexpr int64_t kSeedOfRun = -1;

  // Name of a data set (data/named_datasets.h), or path of files (data/sources.h).
  std::string source = "digits";
  // Columns of targets in a CSV table, with commas between them.
  std::string target;
  // Columns to use of a CSV table, or columns to leave out after "-", with commas
  // between them (CsvChoice); "": all columns.
  std::string columns;
  // Columns of a CSV table whose numbers are categories, with commas between them.
  std::string categories;
  // Sizes of a sample in a CSV table or a NumPy file, with commas between them; "": the
  // sizes in the file.
  std::string shape;
  // Size of the images of a folder, such as "224" or "160x240" (height x width); "":
  // the size of the files.
  std::string image_size;
  // Number of bytes in a sample of a text.
  int64_t block_size = 64;
  // Fraction of the samples in the test part, for data without a test part.
  double test_fraction = 0.1;
  // Fraction of the training part that is held out as validation part; 0: none.
  double validation = 0;
  // Normalization: a pixel in 0 to 1, or a number, becomes (value - mean) / std.
  ChannelValues mean;
  ChannelValues std;
  // Normalization of targets that are numbers: a target becomes (target - mean) / std.
  // The network learns the normalized targets, and predictions have the original units.
  ChannelValues target_mean = 0.0;
  ChannelValues target_std = 1.0;
  // Augmentation of training images (parse_augmentation()).
  std::string augment;
  // Number of samples to use from each part (limit_samples()); 0: all.
  int64_t limit = 0;
  Uneven uneven = Uneven::pad;
  Share share = Share::sampler;
  bool reshuffle = true;
  int64_t sampler_seed = kSeedOfRun;

  template <typename Table>
  static void describe(Table& table) {
    using O = DataOptions;
    table.section("data");
    // When a run resumes, hashes of the data are compared instead of paths
    // (data/data_parts.h), because the folder may have moved.
    table
        .add(
            "data", &O::source,
            "data set: digits, mnist, fashion-mnist, kmnist, cifar-10, or the path of "
            "image folders, NumPy arrays (.npz or a folder of .npy), a table (.csv), a "
            "text (.txt), or IDX files")
        .local();
    table
        .add(
            "target", &O::target,
            "column of the targets in a table (.csv), or several with commas between "
            "them")
        .kept();
    table
        .add(
            "columns", &O::columns,
            "columns of a table (.csv) to use, such as age,city, or to leave out, such "
            "as all,-id (default: all columns)")
        .kept();
    table
        .add(
            "categories", &O::categories,
            "columns of a table (.csv) whose numbers are categories, with commas "
            "between them")
        .kept();
    table
        .add(
            "shape", &O::shape,
            "sizes of a sample of a table or of NumPy arrays, such as 1,28,28 "
            "(default: "
            "the sizes in the file)")
        .kept();
    table
        .add(
            "image_size", &O::image_size,
            "size to which the images of a folder are resized and cropped, such as 224 "
            "or 160x240, height x width (default: the size of the files)")
        .kept();
    table.add("block_size", &O::block_size, "number of bytes in a sample of a text")
        .between(1, kMany)
        .kept();
    table
        .add(
            "test_fraction", &O::test_fraction,
            "fraction of the samples in the test part, for data without a test part")
        .between(0.0001, 0.9)
        .kept();
    table
        .add(
            "validation", &O::validation,
            "fraction of the training samples that is held out, on which the run "
            "evaluates instead of the test part; 0: none")
        .between(0, 0.9)
        .kept();
    table
        .add(
            "mean", &O::mean,
            "mean that is subtracted from pixels in 0 to 1, or from numbers: one, or "
            "one for each channel or column with commas between them")
        .between(-kLarge, kLarge)
        .kept();
    table
        .add(
            "std", &O::std,
            "standard deviation by which pixels or numbers are then divided, like mean")
        .between(kTiny, kLarge)
        .kept();
    table
        .add(
            "target_mean", &O::target_mean,
            "mean that is subtracted from targets that are numbers: one, or one for "
            "each column with commas between them; predictions get it back")
        .between(-kLarge, kLarge)
        .without("default")
        .kept();
    table
        .add(
            "target_std", &O::target_std,
            "standard deviation by which these targets are then divided, like "
            "target_mean")
        .between(kTiny, kLarge)
        .without("default")
        .kept();
    table
        .add(
            "augment", &O::augment,
            "random changes of training images: flip (mirror half of them), "
            "crop:PIXELS "
            "(shift by up to PIXELS), or flip,crop:PIXELS")
        .kept();
    table
        .add(
            "limit", &O::limit,
            "number of samples to use from each part: the first of IDX and CIFAR-10 "
            "files and texts, otherwise samples at equal distances; 0: all")
        .between(0, kMany)
        .kept();
    // A resumed run may change `uneven`, because another number of ranks may require
    // another value.
    table.add("uneven", &O::uneven, "samples that do not divide evenly among ranks");
    table.add("share", &O::share, "distribution of samples to ranks").kept();
    table
        .add(
            "reshuffle", &O::reshuffle,
            "shuffle again in every epoch; false: every epoch has the order of the "
            "first, as with PyTorch's DistributedSampler without set_epoch")
        .kept();
    table
        .add(
            "sampler_seed", &O::sampler_seed,
            "seed of the sample order, with the meaning of DistributedSampler's seed")
        .between(0, 9007199254740992)
        .or_word("auto", kSeedOfRun, "the value of seed")
        .kept();
  }
};

/// Returns whether targets are normalized.
inline bool has_normalized_targets(const DataOptions& options) {
  return options.target_mean.values() != std::vector<double>{0} ||
         options.target_std.values() != std::vector<double>{1};
}

}  // namespace tandem
