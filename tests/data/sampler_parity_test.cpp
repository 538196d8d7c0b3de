// The sampler against the installed PyTorch; sampler_test.cpp has recorded tables of
// one version.

#include <gtest/gtest.h>

#include <sstream>

#include "tandem/base/sha256.h"
#include "tandem/data/sampler.h"
#include "tandem/train/training_batches.h"
#include "tests/parity/python.h"

namespace tandem::sampler_parity_test {

// Prints a line per size and world: the hash of every rank's indices in every setting.
constexpr const char* kPython = R"(
import array, hashlib, sys
from torch.utils.data import DistributedSampler

settings = [(False, 0, 0)] + [(True, s, e) for s, e in
            ((0, 0), (0, 1), (5, 3), (1234567890123, 40))]
sizes = [int(text) for text in sys.argv[1:]]
for size in sizes:
    for world in range(1, 9):
        sha256 = hashlib.sha256()
        for shuffle, seed, epoch in settings:
            for drop_last in (False, True):
                for rank in range(world):
                    sampler = DistributedSampler(
                        range(size), world, rank, shuffle, seed, drop_last)
                    sampler.set_epoch(epoch)
                    indices = list(sampler)
                    sha256.update(array.array('q', [len(indices)] + indices))
        print(size, world, sha256.hexdigest())
)";

struct Setting {
  bool shuffle;
  uint64_t seed;
  int64_t epoch;
};
constexpr Setting kSettings[] = {
    {false, 0, 0}, {true, 0, 0}, {true, 0, 1}, {true, 5, 3}, {true, 1234567890123, 40}};

std::string our_line(int64_t size, int64_t world) {
  Sha256 hash;
  for (const auto& [shuffle, seed, epoch] : kSettings) {
    for (const Tail tail : {Tail::pad, Tail::drop}) {
      for (int64_t rank = 0; rank < world; ++rank) {
        const auto indices =
            shard_indices({size, world, rank, seed, shuffle, tail}, epoch);
        const auto count = static_cast<int64_t>(indices.size());
        hash.update(&count, sizeof(count));
        hash.update(indices.data(), indices.size() * sizeof(int64_t));
      }
    }
  }
  return std::to_string(size) + " " + std::to_string(world) + " " + hash.hex_digest();
}

void expect_pythons_indices(const std::vector<int64_t>& sizes) {
  std::vector<std::string> arguments = {"-c", kPython};
  for (const int64_t size : sizes) {
    arguments.push_back(std::to_string(size));
  }
  const auto result = checked(run_python(arguments));
  std::istringstream lines(result.output);
  for (const int64_t size : sizes) {
    for (int64_t world = 1; world <= 8; ++world) {
      std::string line;
      ASSERT_TRUE(std::getline(lines, line));
      EXPECT_EQ(our_line(size, world), line);
    }
  }
}

TEST(ParitySampler, EqualsPythonForSizesUpTo100AndUpTo8Ranks) {
  TANDEM_NEEDS_PYTHON_TORCH();
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= 100; ++size) {
    sizes.push_back(size);
  }
  expect_pythons_indices(sizes);
}

TEST(ParitySampler, EqualsPythonForMnistAndNearbySizes) {
  TANDEM_NEEDS_PYTHON_TORCH();
  expect_pythons_indices({10'000, 59'999, 60'000});
}

// The samplers of the tutorials' programs with seed 0: first without set_epoch, then
// with set_epoch(epoch) from 1 on. Prints a line per rank and epoch.
constexpr const char* kDocumentPython = R"(
from torch.utils.data import DistributedSampler

for calls_set_epoch in (False, True):
    for rank in range(2):
        sampler = DistributedSampler(range(101), num_replicas=2, rank=rank)
        for epoch in range(1, 4):
            if calls_set_epoch:
                sampler.set_epoch(epoch)
            print(*sampler)
)";

std::string order_of(const RunConfig& config) {
  Dataset train;
  train.size = 101;
  std::string text;
  for (const int64_t rank : {0, 1}) {
    for (const int64_t epoch : {0, 1, 2}) {
      const auto indices = shard_indices(
          sampler_options(config, train, {2, rank}), sampler_epoch(config, epoch));
      for (size_t i = 0; i < indices.size(); ++i) {
        text += (i == 0 ? "" : " ") + std::to_string(indices[i]);
      }
      text += "\n";
    }
  }
  return text;
}

TEST(ParitySampler, RecipesHaveTheOrderOfTheirTutorialsForAnySeed) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto result = checked(run_python({"-c", kDocumentPython}));
  const auto expect_order = [](const std::string& recipe, const std::string& order) {
    SCOPED_TRACE(recipe);
    RunConfig config;
    read_recipe(config, source_dir() + "/recipes/" + recipe + ".toml");
    EXPECT_EQ(order_of(config), order);
    config.training.seed += 5;
    EXPECT_EQ(order_of(config), order);
  };
  const std::string& both = result.output;
  size_t half = 0;
  for (int line = 0; line < 6; ++line) {
    half = both.find('\n', half) + 1;
  }
  for (const char* recipe :
       {"gloo-machines", "hogwild", "ddp-linear", "parameter-server", "ddp",
        "nodes-gpus", "amp-fp16"}) {
    expect_order(recipe, both.substr(0, half));
  }
  for (const char* recipe : {"ddp-manual", "ddp-manual-flat", "ddp-manual-overlap"}) {
    expect_order(recipe, both.substr(half));
  }
}

TEST(SamplerSeed, IsTheSeedOfTheRunByDefault) {
  RunConfig config;
  config.training.seed = 7;
  const std::string of_seed_7 = order_of(config);
  config.data.sampler_seed = 7;
  EXPECT_EQ(order_of(config), of_seed_7);
  config.data.sampler_seed = 0;
  EXPECT_NE(order_of(config), of_seed_7);
  config.training.seed = 0;
  config.data.sampler_seed = 7;
  EXPECT_EQ(order_of(config), of_seed_7);
}

}  // namespace tandem::sampler_parity_test
