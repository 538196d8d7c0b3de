#pragma once

#include <cstdint>
#include <string>

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

  // Name in dataset_table() (data/dataset.h), or path of a folder (load_dataset()).
  std::string source = "digits";
  // Normalization: pixels in 0..1 become (pixel - mean) / std.
  double mean = 0.1307;
  double std = 0.3081;
  // Number of samples to use from the training part and from the test part, starting
  // with the first sample; 0: all.
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
            "data set: digits, mnist, fashion-mnist, kmnist, cifar-10, or a folder of "
            "IDX files")
        .local();
    table.add("mean", &O::mean, "mean that is subtracted from pixels in 0 to 1")
        .between(-kLarge, kLarge)
        .kept();
    table.add("std", &O::std, "standard deviation by which pixels are then divided")
        .between(kTiny, kLarge)
        .kept();
    table.add("limit", &O::limit, "number of samples to use, from the first on; 0: all")
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

}  // namespace tandem
