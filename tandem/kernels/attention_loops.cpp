// Compiled once for each instruction set (lanes.h).

#include "tandem/kernels/attention_loops.h"

#include "tandem/kernels/products.h"
#include "tandem/kernels/vectors.h"

namespace tandem::TANDEM_ISA {

namespace {

using Ints = Lanes<kLanes>::Ints;

constexpr float kMinusInfinity = -__builtin_inff();

// Returns e^x for x <= 0 with an error of at most 2 units in the last place, 0 for x <
// -87.3, and NaN for NaN. Source: expf() of the Cephes library (Moshier).
TANDEM_ALWAYS_INLINE Floats exponential(const Floats& x) {
  // The sum of this number and a small float is rounded to an integer, which is in the
  // lowest bits of the sum.
  constexpr float kRounds = 12582912.0F;
  const Floats sum = x * 1.44269504F + kRounds;
  const Floats n = sum - kRounds;
  const Floats r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  Floats y = r * 1.9875691500e-4F + 1.3981999507e-3F;
  y = y * r + 8.3334519073e-3F;
  y = y * r + 4.1665795894e-2F;
  y = y * r + 1.6666665459e-1F;
  y = y * r + 5.0000001201e-1F;
  y = y * r * r + r + 1.0F;
  Ints exponent;
  Ints bits;
  std::memcpy(&exponent, &sum, sizeof(sum));
  std::memcpy(&bits, &y, sizeof(y));
  bits += exponent << 23;
  std::memcpy(&y, &bits, sizeof(y));
  y = x < -87.3F ? Floats{} : y;
  return x == x ? y : x;
}

float largest(const float* row, int64_t count) {
  Floats best = Floats{} + kMinusInfinity;
  for (int64_t i = 0; i < count; i += kLanes) {
    const Floats value = load(row + i);
    best = value > best ? value : best;
  }
  float result = best[0];
  for (int i = 1; i < kLanes; ++i) {
    result = best[i] > result ? best[i] : result;
  }
  return result;
}

float sum_of(const Floats& values) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) {
    sum += values[i];
  }
  return sum;
}

float dot(const float* a, const float* b, int64_t count) {
  Floats sum = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    sum += load(a + i) * load(b + i);
  }
  return sum_of(sum);
}

void copy_scaled(
    const HeadRows& from, int64_t begin, int64_t rows, int64_t depth, float scale,
    float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < depth; d += kLanes) {
      store(load(from.data + (begin + r) * from.row + d) * scale, to + r * depth + d);
    }
  }
}

// Writes `depth` rows, with zeros after the last key.
void transpose(const HeadRows& from, int64_t keys, int64_t depth, float* to) {
  const int64_t row = scores_row(keys);
  for (int64_t d = 0; d < depth; ++d) {
    for (int64_t k = 0; k < row; ++k) {
      to[d * row + k] = k < keys ? from.data[k * from.row + d] : 0;
    }
  }
}

void add_rows(const float* from, int64_t rows, int64_t depth, const HeadRows& to) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = to.data + r * to.row;
    for (int64_t d = 0; d < depth; d += kLanes) {
      store(load(row + d) + load(from + r * depth + d), row + d);
    }
  }
}

// Queries of a head whose scores are computed together.
struct Tile {
  int64_t begin;
  int64_t rows;
  // Keys that the last query reads, and the same number in full vectors.
  int64_t keys;
  int64_t wide;
};

Tile tile_at(const AttentionHead& head, int64_t begin) {
  Tile tile = {};
  tile.begin = begin;
  const int64_t left = head.queries - begin;
  tile.rows = left < kAttentionRows ? left : kAttentionRows;
  const int64_t last = begin + tile.rows;
  tile.keys = head.is_causal && last < head.keys ? last : head.keys;
  tile.wide = (tile.keys + kLanes - 1) / kLanes * kLanes;
  return tile;
}

// Computes scores[row][key] = sum over depth of a[row][.] * across[.][key].
void multiply_across(
    const AttentionHead& head, const Tile& tile, const float* a, const float* across,
    float* scores) {
  const int64_t row = scores_row(head.keys);
  multiply(
      {a, head.depth, 1, across, row, row, tile.wide, head.depth}, tile.rows, false,
      scores);
}

// Computes sums[row][.] = sum over keys of scores[row][key] * along[key][.].
void multiply_along(
    const AttentionHead& head, const Tile& tile, const float* scores,
    const float* along, float* sums) {
  const int64_t row = scores_row(head.keys);
  multiply(
      {scores, row, 1, along, head.depth, head.depth, head.depth, tile.keys}, tile.rows,
      false, sums);
}

// Adds sum over rows of scores[row][key] * tile_rows[row][.] to sums[key][.].
void add_for_keys(
    const AttentionHead& head, const Tile& tile, const float* scores,
    const float* tile_rows, float* sums) {
  const int64_t row = scores_row(head.keys);
  multiply(
      {scores, 1, row, tile_rows, head.depth, head.depth, head.depth, tile.rows},
      tile.keys, true, sums);
}

// Adds the mask to a query's scores, and removes the keys that it does not read.
void mask_scores(const AttentionHead& head, const Tile& tile, int64_t r, float* row) {
  const int64_t query = tile.begin + r;
  const int64_t keys = head.is_causal && query + 1 < tile.keys ? query + 1 : tile.keys;
  if (head.mask != nullptr) {
    const float* mask = head.mask + query * head.mask_row;
    for (int64_t k = 0; k < keys; ++k) {
      row[k] += mask[k * head.mask_column];
    }
  }
  for (int64_t k = keys; k < tile.wide; ++k) {
    row[k] = kMinusInfinity;
  }
}

// Replaces scores by e^(score - most) and returns their sum.
float exponentials(float most, int64_t wide, float* row) {
  Floats sum = {};
  for (int64_t k = 0; k < wide; k += kLanes) {
    const Floats value = exponential(load(row + k) - most);
    store(value, row + k);
    sum += value;
  }
  return sum_of(sum);
}

}  // namespace

void attention_forward(
    const AttentionHead& head, const HeadRows& output, float* statistics,
    float* scratch) {
  const int64_t row = scores_row(head.keys);
  float* const keys = scratch;
  float* const scores = keys + head.depth * row;
  float* const values = scores + kAttentionRows * row;
  float* const rows = values + head.keys * head.depth;
  transpose(head.key, head.keys, head.depth, keys);
  // Rows of a network's tensor are often so far apart that they share few sets of the
  // L1 cache.
  copy_scaled(head.value, 0, head.keys, head.depth, 1, values);
  for (int64_t begin = 0; begin < head.queries; begin += kAttentionRows) {
    const Tile tile = tile_at(head, begin);
    copy_scaled(head.query, begin, tile.rows, head.depth, head.scale, rows);
    multiply_across(head, tile, rows, keys, scores);
    float* const tile_statistics = statistics + 2 * begin;
    for (int64_t r = 0; r < tile.rows; ++r) {
      float* const of_row = scores + r * row;
      mask_scores(head, tile, r, of_row);
      tile_statistics[2 * r] = largest(of_row, tile.wide);
      tile_statistics[2 * r + 1] =
          1 / exponentials(tile_statistics[2 * r], tile.wide, of_row);
    }
    multiply_along(head, tile, scores, values, rows);
    for (int64_t r = 0; r < tile.rows; ++r) {
      float* const to = output.data + (begin + r) * output.row;
      for (int64_t d = 0; d < head.depth; d += kLanes) {
        store(load(rows + r * head.depth + d) * tile_statistics[2 * r + 1], to + d);
      }
    }
  }
}

void attention_backward(
    const AttentionHead& head, const HeadRows& output, const float* statistics,
    const HeadRows& grad_output, const HeadRows& grad_query, const HeadRows& grad_key,
    const HeadRows& grad_value, float* scratch) {
  const int64_t row = scores_row(head.keys);
  const int64_t depth = head.depth;
  float* const keys = scratch;
  float* const values = keys + depth * row;
  float* const scores = values + depth * row;
  float* const grad_scores = scores + kAttentionRows * row;
  float* const key_rows = grad_scores + kAttentionRows * row;
  float* const grad_keys = key_rows + head.keys * depth;
  float* const grad_values = grad_keys + head.keys * depth;
  float* const rows = grad_values + head.keys * depth;
  float* const grad_rows = rows + kAttentionRows * depth;
  float* const sums = grad_rows + kAttentionRows * depth;
  transpose(head.key, head.keys, depth, keys);
  transpose(head.value, head.keys, depth, values);
  copy_scaled(head.key, 0, head.keys, depth, 1, key_rows);
  __builtin_memset(
      grad_keys, 0, static_cast<size_t>(2 * head.keys * depth) * sizeof(float));
  for (int64_t begin = 0; begin < head.queries; begin += kAttentionRows) {
    const Tile tile = tile_at(head, begin);
    copy_scaled(head.query, begin, tile.rows, depth, head.scale, rows);
    copy_scaled(grad_output, begin, tile.rows, depth, 1, grad_rows);
    multiply_across(head, tile, rows, keys, scores);
    multiply_across(head, tile, grad_rows, values, grad_scores);
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t query = begin + r;
      float* const of_row = scores + r * row;
      float* const grad_row = grad_scores + r * row;
      mask_scores(head, tile, r, of_row);
      const float most = statistics[2 * query];
      const float factor = statistics[2 * query + 1];
      const float mean =
          dot(grad_rows + r * depth, output.data + query * output.row, depth);
      for (int64_t k = 0; k < tile.wide; k += kLanes) {
        const Floats weight = exponential(load(of_row + k) - most) * factor;
        store(weight, of_row + k);
        store(weight * (load(grad_row + k) - mean), grad_row + k);
      }
    }
    add_for_keys(head, tile, scores, grad_rows, grad_values);
    add_for_keys(head, tile, grad_scores, rows, grad_keys);
    multiply_along(head, tile, grad_scores, key_rows, sums);
    for (int64_t r = 0; r < tile.rows; ++r) {
      float* const to = grad_query.data + (begin + r) * grad_query.row;
      for (int64_t d = 0; d < depth; d += kLanes) {
        store(load(sums + r * depth + d) * head.scale, to + d);
      }
    }
  }
  add_rows(grad_keys, head.keys, depth, grad_key);
  add_rows(grad_values, head.keys, depth, grad_value);
}

}  // namespace tandem::TANDEM_ISA
