#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// What happens when the samples cannot be shared out evenly among the ranks.
enum class Uneven { pad, drop, join, error };
template <>
struct Choices<Uneven> {
  static constexpr Choice<Uneven> rows[] = {
      {Uneven::pad, "pad", "repeat some"},
      {Uneven::drop, "drop", "leave some out"},
      {Uneven::join, "join", "each once; ranks without any go along"},
      {Uneven::error, "error", "refuse to start"}};
};

/// How ranks get their samples.
enum class Share { sampler, scatter };
template <>
struct Choices<Share> {
  static constexpr Choice<Share> rows[] = {
      {Share::sampler, "sampler", "each rank reads the files"},
      {Share::scatter, "scatter",
       "rank 0 reads, and sends every rank an equal random share"}};
};

/// Which samples a run sees, and how.
struct DataOptions {
  // The sampler_seed that selects the value of `seed`.
  static constexpr int64_t kSeedOfRun = -1;

  // A name of dataset_table() (data/dataset.h), or a folder of IDX files.
  std::string source = "digits";
  // Pixels in 0..1 become (pixel - mean) / std.
  double mean = 0.1307;
  double std = 0.3081;
  // Only this many samples, from the start; 0: all.
  int64_t limit = 0;
  Uneven uneven = Uneven::pad;
  Share share = Share::sampler;
  bool reshuffle = true;
  int64_t sampler_seed = kSeedOfRun;

  template <typename Table>
  static void describe(Table& table) {
    using O = DataOptions;
    table.section("data");
    // The folder may have moved: hashes of the data are compared (data/data_parts.h).
    table
        .add(
            "data", &O::source,
            "digits, mnist, fashion-mnist, kmnist, cifar-10, or a folder of IDX files")
        .local();
    table.add("mean", &O::mean, "subtracted from pixels in 0..1")
        .between(-kLarge, kLarge)
        .kept();
    table.add("std", &O::std, "then divides them").between(kTiny, kLarge).kept();
    table.add("limit", &O::limit, "use the first N samples only; 0: all")
        .between(0, kMany)
        .kept();
    // Not kept: another number of ranks may need another choice.
    table.add("uneven", &O::uneven, "samples that ranks cannot share evenly");
    table.add("share", &O::share, "how ranks get their samples").kept();
    table
        .add(
            "reshuffle", &O::reshuffle,
            "false: every epoch has the order of the first, as PyTorch's "
            "DistributedSampler without set_epoch")
        .kept();
    table
        .add(
            "sampler_seed", &O::sampler_seed,
            "seed of the sample order, as the seed of PyTorch's DistributedSampler")
        .between(0, 9007199254740992)
        .or_word("auto", kSeedOfRun, "the value of seed")
        .kept();
  }
};

}  // namespace tandem
