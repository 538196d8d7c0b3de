#pragma once

#include <cstdint>

namespace tandem {

/// The positions of one head, each with `depth` neighboring floats.
struct HeadRows {
  float* data = nullptr;
  // Distance between neighboring positions, in floats.
  int64_t row = 0;
};

/// One head of scaled dot-product attention: output = softmax(scale * query * key^T +
/// mask) * value.
struct AttentionHead {
  HeadRows query;
  HeadRows key;
  HeadRows value;
  int64_t queries = 0;
  int64_t keys = 0;
  // Floats of a position, a multiple of kAttentionDepth.
  int64_t depth = 0;
  float scale = 1;
  // True if query i reads only the keys 0 to i.
  bool is_causal = false;
  // Numbers that are added to the scores; null if there are none.
  const float* mask = nullptr;
  int64_t mask_row = 0;
  int64_t mask_column = 0;
};

constexpr int64_t kAttentionDepth = 16;

/// Queries whose scores exist at the same time, four blocks of 6 rows (products.h).
constexpr int64_t kAttentionRows = 24;

/// Returns the distance between rows of scores, in floats: full vectors, and rows that
/// do not share sets of the L1 cache.
constexpr int64_t scores_row(int64_t keys) {
  return (keys + 15) / 16 * 16 + 16;
}

/// Returns the size of the scratch memory of a head, in floats. Align the memory to 64
/// bytes.
constexpr int64_t attention_scratch(int64_t keys, int64_t depth, bool backward) {
  const int64_t across = depth * scores_row(keys) + kAttentionRows * scores_row(keys);
  const int64_t along = (keys + kAttentionRows) * depth;
  return backward ? 2 * across + 3 * along : across + along;
}

// Attention for one head, for each instruction set.
//
// - attention_forward: computes `output`. Writes two floats per query to `statistics`:
//   the largest score, and the reciprocal of the sum of its exponentials.
// - attention_backward: computes the gradients of query, key and value from the results
//   of forward and the gradient of its output. Overwrites the gradient of the query and
//   adds to the others.
//
// Both keep the scores of kAttentionRows queries, and backward computes them again
// (Dao and others, FlashAttention, 2022, without tiles of keys). Causal heads skip the
// keys after a tile's last query.
#define TANDEM_ATTENTION_LOOPS(isa)                                               \
  namespace isa {                                                                 \
  void attention_forward(                                                         \
      const AttentionHead& head, const HeadRows& output, float* statistics,       \
      float* scratch);                                                            \
  void attention_backward(                                                        \
      const AttentionHead& head, const HeadRows& output, const float* statistics, \
      const HeadRows& grad_output, const HeadRows& grad_query,                    \
      const HeadRows& grad_key, const HeadRows& grad_value, float* scratch);      \
  }
TANDEM_ATTENTION_LOOPS(avx512)
TANDEM_ATTENTION_LOOPS(avx2)
TANDEM_ATTENTION_LOOPS(neon)
TANDEM_ATTENTION_LOOPS(base)
#undef TANDEM_ATTENTION_LOOPS

}  // namespace tandem
