#include "tandem/core/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "tandem/base/error.h"
#include "tandem/core/parallel.h"
#include "tandem/core/simd.h"

namespace tandem {

namespace {

// Number of rounds of the counter-based generator Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A block is computed by
// kPhiloxRounds calls of philox_round() and philox_next_key(). Callers compute several
// blocks at a time.
constexpr int kPhiloxRounds = 10;

// Computes one round of Philox on the block x0 to x3.
TANDEM_ALWAYS_INLINE void philox_round(
    uint32_t& x0, uint32_t& x1, uint32_t& x2, uint32_t& x3, uint32_t key0,
    uint32_t key1) {
  const uint64_t product0 = uint64_t{0xD2511F53} * x0;
  const uint64_t product1 = uint64_t{0xCD9E8D57} * x2;
  x0 = static_cast<uint32_t>(product1 >> 32) ^ x1 ^ key0;
  x2 = static_cast<uint32_t>(product0 >> 32) ^ x3 ^ key1;
  x1 = static_cast<uint32_t>(product1);
  x3 = static_cast<uint32_t>(product0);
}

// Computes the key of the next round.
TANDEM_ALWAYS_INLINE void philox_next_key(uint32_t& key0, uint32_t& key1) {
  key0 += 0x9E3779B9;
  key1 += 0xBB67AE85;
}

// Number of Philox blocks in a group. A group has 128 random numbers of 16 bits, one
// for each of 128 neighboring elements of a sample (core/dropout.h).
//
// Element e of a group uses the 16-bit half e / 64 of word (e / 16) % 4 in block e %
// 16. In this order, a vectorized loop over blocks writes neighboring elements.
constexpr uint32_t kLanes = 16;
constexpr int64_t kGroup = 8 * kLanes;

// Philox's key, and its counter for one sample and layer, without the counter's first
// word. The first word is the number of the block.
struct DropoutCounter {
  uint32_t position;
  uint32_t epoch;
  uint32_t layer;
  uint32_t key0;
  uint32_t key1;
};

// Returns the counter for a sample at `position` of `epoch`.
TANDEM_ALWAYS_INLINE DropoutCounter
dropout_counter(uint64_t seed, int64_t epoch, int64_t position, int64_t layer) {
  return {
      static_cast<uint32_t>(position), static_cast<uint32_t>(epoch),
      static_cast<uint32_t>(layer), static_cast<uint32_t>(seed),
      static_cast<uint32_t>(seed >> 32)};
}

// Minimum number of elements per thread.
constexpr int64_t kElementsOfAThread = 32'768;

using Words = uint32_t[4][kLanes];

TANDEM_ALWAYS_INLINE void philox(
    uint32_t first_block, const DropoutCounter& counter, Words& x) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    x[0][i] = first_block + i;
    x[1][i] = counter.position;
    x[2][i] = counter.epoch;
    x[3][i] = counter.layer;
  }
  uint32_t key0 = counter.key0;
  uint32_t key1 = counter.key1;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (uint32_t i = 0; i < kLanes; ++i) {
      philox_round(x[0][i], x[1][i], x[2][i], x[3][i], key0, key1);
    }
    philox_next_key(key0, key1);
  }
}

template <typename T>
TANDEM_ALWAYS_INLINE void fill_sample(
    const DropoutCounter& counter, uint32_t threshold, T scale, T* out,
    int64_t elements) {
  Words words;
  T values[kGroup];
  for (int64_t first = 0; first < elements; first += kGroup) {
    philox(static_cast<uint32_t>(first / 8), counter, words);
    for (uint32_t word = 0; word < 4; ++word) {
      for (uint32_t i = 0; i < kLanes; ++i) {
        const uint32_t x = words[word][i];
        values[word * kLanes + i] = (x & 0xFFFF) >= threshold ? scale : T(0);
        values[(4 + word) * kLanes + i] = (x >> 16) >= threshold ? scale : T(0);
      }
    }
    const int64_t count = std::min(kGroup, elements - first);
    std::memcpy(out + first, values, static_cast<size_t>(count) * sizeof(T));
  }
}

TANDEM_SIMD_CLONES void fill(
    const DropoutCounter& counter, uint32_t threshold, float scale, float* out,
    int64_t elements) {
  fill_sample(counter, threshold, scale, out, elements);
}

TANDEM_SIMD_CLONES void fill(
    const DropoutCounter& counter, uint32_t threshold, double scale, double* out,
    int64_t elements) {
  fill_sample(counter, threshold, scale, out, elements);
}

TANDEM_SIMD_CLONES void fill(
    const DropoutCounter& counter, uint32_t threshold, uint8_t scale, uint8_t* out,
    int64_t elements) {
  fill_sample(counter, threshold, scale, out, elements);
}

// Calls `fill_one` with the counter of each sample and the place of its elements.
template <typename T, typename Fill>
void for_each_sample(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements,
    T* out, const Fill& fill_one) {
  const int64_t grain =
      std::max<int64_t>(1, kElementsOfAThread / std::max<int64_t>(1, elements));
  parallel_for(0, num_samples, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t position = context.first_position + i * context.position_stride;
      fill_one(
          dropout_counter(context.seed, context.epoch, position, layer),
          out + i * elements);
    }
  });
}

template <typename T>
void fill_samples(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements,
    double p, T scale, T* out) {
  if (!(p >= 0 && p < 1)) {
    throw ConfigError(
        "[model] the dropout probability is " + std::to_string(p) +
        ", expected 0 or more and less than 1; change p of the dropout layer");
  }
  // An element is kept if its random number is at least the threshold.
  const auto threshold = static_cast<uint32_t>(std::lround(p * 65536));
  for_each_sample(
      context, layer, num_samples, elements, out,
      [&](const DropoutCounter& counter, T* sample) {
        fill(counter, threshold, scale, sample, elements);
      });
}

// Writes one number per word of a block.
TANDEM_SIMD_CLONES void fill_uniform(
    const DropoutCounter& counter, double* out, int64_t elements) {
  constexpr int64_t kWords = 4 * kLanes;
  Words words;
  double values[kWords];
  for (int64_t first = 0; first < elements; first += kWords) {
    philox(static_cast<uint32_t>(first / 4), counter, words);
    for (uint32_t word = 0; word < 4; ++word) {
      for (uint32_t i = 0; i < kLanes; ++i) {
        values[word * kLanes + i] = (words[word][i] + 0.5) * 0x1p-32;
      }
    }
    const int64_t count = std::min(kWords, elements - first);
    std::memcpy(out + first, values, static_cast<size_t>(count) * sizeof(double));
  }
}

// Makes a seed from the first words of the CPU's mask.
uint64_t seed_of(const SampleContext& context, int64_t layer) {
  const auto counter =
      dropout_counter(context.seed, context.epoch, context.first_position, layer);
  Words words;
  philox(0, counter, words);
  return uint64_t{words[0][0]} << 32 | words[1][0];
}

// Returns a new generator, because thread ranks may share a device. Only CUDA has a
// generator in every version of LibTorch. Operators of other devices accept the CPU's
// generator.
at::Generator generator_of(
    const SampleContext& context, int64_t layer, at::Device device) {
  auto generator = device.is_cuda()
                       ? at::globalContext().defaultGenerator(device).clone()
                       : at::detail::createCPUGenerator();
  generator.set_current_seed(seed_of(context, layer));
  return generator;
}

}  // namespace

at::Tensor dropout_mask(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements,
    double p, const at::TensorOptions& options) {
  auto mask = at::empty({num_samples, elements}, options);
  const double scale = 1 / (1 - p);
  if (!mask.is_cpu()) {
    return mask.bernoulli_(1 - p, generator_of(context, layer, mask.device()))
        .mul_(scale);
  }
  if (mask.scalar_type() == at::kDouble) {
    fill_samples(
        context, layer, num_samples, elements, p, scale, mask.data_ptr<double>());
  } else {
    fill_samples(
        context, layer, num_samples, elements, p, static_cast<float>(scale),
        mask.data_ptr<float>());
  }
  return mask;
}

void dropout_keep(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements,
    double p, uint8_t* keep) {
  fill_samples(context, layer, num_samples, elements, p, uint8_t{1}, keep);
}

at::Tensor uniform_numbers(
    const SampleContext& context, int64_t layer, int64_t num_samples,
    int64_t elements) {
  auto numbers = at::empty({num_samples, elements}, at::kDouble);
  for_each_sample(
      context, layer, num_samples, elements, numbers.data_ptr<double>(),
      [&](const DropoutCounter& counter, double* sample) {
        fill_uniform(counter, sample, elements);
      });
  return numbers;
}

}  // namespace tandem
