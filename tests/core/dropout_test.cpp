#include "tandem/core/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::dropout_test {

using Block = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

// Philox4x32-10 for one block, written as in the paper.
Block philox(Block counter, Key key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

// Returns the 16-bit number that decides about an element of a mask. The element is
// dropped if p * 65536 is above the number.
uint32_t number_of(
    const SampleContext& context, int64_t layer, int64_t elements, int64_t element) {
  uint32_t number = 0;
  for (uint32_t bit = 0x8000; bit != 0; bit >>= 1) {
    const double p = (number + bit) / 65536.0;
    const auto mask = dropout_mask(context, layer, 1, elements, p, at::kDouble);
    if (mask.data_ptr<double>()[element] != 0) {
      number += bit;
    }
  }
  return number;
}

at::Tensor mask_of(
    const SampleContext& context, int64_t layer = 3, int64_t samples = 1,
    int64_t elements = 10'000, double p = 0.5) {
  return dropout_mask(context, layer, samples, elements, p, at::kDouble);
}

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, ReferenceMatchesTheKnownAnswers) {
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(
      philox({0, 0, 0, 0}, {0, 0}),
      (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
      (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox(
          {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Element e of a group of 128 uses half e / 64 of word (e / 16) % 4 of block e % 16.
TEST(Philox, CountersAreBlockPositionEpochAndLayer) {
  SampleContext context;
  context.seed = 0x299f31d0a4093822;
  context.epoch = 0x13198a2e;
  context.first_position = 0x85a308d3;
  const int64_t layer = 0x03707344;
  for (const int64_t element : {0, 1, 15, 16, 63, 64, 127, 128, 200, 255, 256, 299}) {
    const auto e = static_cast<uint32_t>(element % 128);
    const uint32_t block = static_cast<uint32_t>(element / 128) * 16 + e % 16;
    const Block words =
        philox({block, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
    const uint32_t word = words[e / 16 % 4];
    EXPECT_EQ(
        number_of(context, layer, 300, element), e < 64 ? word & 0xffff : word >> 16)
        << element;
  }
  // The first known answer.
  EXPECT_EQ(number_of({}, 0, 128, 0), 0xe8d5u);
  EXPECT_EQ(number_of({}, 0, 128, 64), 0x6627u);
  EXPECT_EQ(number_of({}, 0, 128, 48), 0xdbd8u);
}

TEST(DropoutMask, DoesNotDependOnHowABatchIsDivided) {
  SampleContext context;
  context.seed = 77;
  context.epoch = 2;
  context.first_position = 5;
  context.position_stride = 3;
  const auto whole = mask_of(context, 4, 12, 301);
  std::vector<at::Tensor> pieces;
  for (const int64_t size : {1, 4, 7}) {
    pieces.push_back(mask_of(context, 4, size, 301));
    context.first_position += size * 3;
  }
  EXPECT_TRUE(at::cat(pieces).equal(whole));
  // Rank 2 of 4 has every fourth sample of the whole batch.
  const auto single = mask_of({77, 2, 0, 1}, 4, 16, 301);
  const auto shard = mask_of({77, 2, 2, 4}, 4, 4, 301);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(shard[i].equal(single[2 + 4 * i])) << i;
  }
}

TEST(DropoutMask, DoesNotDependOnEarlierMasksOrTheDtype) {
  const SampleContext context{7, 1, 100, 1};
  const auto first = mask_of(context, 2, 3, 500, 0.25);
  mask_of({8, 0, 0, 1}, 9, 2, 33);
  EXPECT_TRUE(mask_of(context, 2, 3, 500, 0.25).equal(first));
  EXPECT_TRUE(mask_of(context, 2, 3, 200, 0.25).equal(first.narrow(1, 0, 200)));
  const auto floats = dropout_mask(context, 2, 3, 500, 0.25, at::kFloat);
  EXPECT_EQ(floats.scalar_type(), at::kFloat);
  EXPECT_TRUE(floats.ne(0).equal(first.ne(0)));
}

TEST(DropoutMask, SeedEpochLayerAndPositionEachChangeIt) {
  const SampleContext base{0x1111, 5, 9, 1};
  std::vector<at::Tensor> masks = {mask_of(base), mask_of(base, 4)};
  for (const uint64_t seed :
       {uint64_t{0x1112}, uint64_t{0x1111} + (uint64_t{1} << 32)}) {
    auto other = base;
    other.seed = seed;
    masks.push_back(mask_of(other));
  }
  auto other = base;
  other.epoch = 6;
  masks.push_back(mask_of(other));
  other = base;
  other.first_position = 10;
  masks.push_back(mask_of(other));
  for (size_t i = 0; i < masks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double alike = masks[i].eq(masks[j]).to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(alike, 0.5, 0.025) << i << " and " << j;  // 5 sigma
    }
  }
}

TEST(DropoutMask, DropsWithProbabilityPAndScalesTheRest) {
  for (const double p : {0.1, 0.25, 0.5, 0.9}) {
    const auto mask = mask_of({3, 0, 0, 1}, 1, 40, 10'007, p);
    const auto kept = mask.ne(0);
    const auto count = static_cast<double>(mask.numel());
    const double dropped = 1 - kept.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(dropped, p, 4.5 * std::sqrt(p * (1 - p) / count)) << p;
    EXPECT_TRUE(mask.equal(kept.to(at::kDouble) / (1 - p))) << p;
  }
  EXPECT_TRUE(mask_of({3, 0, 0, 1}, 1, 4, 1000, 0).eq(1).all().item<bool>());
}

TEST(DropoutMask, ImpossibleProbabilitiesAreErrors) {
  for (const double p : {1.0, 1.5, -0.1, std::nan("")}) {
    expect_error<ConfigError>(
        [&] { mask_of({}, 0, 1, 10, p); }, {"dropout probability"});
  }
}

}  // namespace tandem::dropout_test
