#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/npy.h"
#include "tandem/data/sampler.h"

namespace tandem {

/// Returns samples of this shape in memory.
template <typename Number>
Samples samples_of(std::vector<int64_t> shape, std::vector<Number> numbers) {
  const auto type = std::is_same_v<Number, float>     ? ElementType::float32
                    : std::is_same_v<Number, int64_t> ? ElementType::int64
                                                      : ElementType::uint8;
  return {type, std::move(shape), std::move(numbers)};
}

/// Returns `count` samples of this shape. `number_of` returns the element at an index.
template <typename Number, typename NumberOf>
Samples make_samples(
    const std::vector<int64_t>& shape, int64_t count, const NumberOf& number_of) {
  int64_t numel = count;
  for (const int64_t size : shape) {
    numel *= size;
  }
  std::vector<Number> numbers;
  for (int64_t i = 0; i < numel; ++i) {
    numbers.push_back(static_cast<Number>(number_of(i)));
  }
  return samples_of(shape, std::move(numbers));
}

/// Writes samples as a .npy file.
inline void write_npy(const std::string& path, const Samples& samples) {
  std::vector<int64_t> shape = samples.shape;
  const auto bytes = static_cast<int64_t>(samples.bytes.size());
  shape.insert(shape.begin(), bytes / samples.sample_bytes());
  write_npy(path, samples.type, shape, samples.bytes.data());
}

/// Returns a data set of `size` samples.
inline Dataset dataset_of(int64_t size, Samples inputs, Samples targets) {
  Dataset data;
  data.size = size;
  data.inputs = std::move(inputs);
  data.targets = std::move(targets);
  return data;
}

/// Returns the first `count` samples as a tensor that shares their memory.
inline at::Tensor tensor_of(const Samples& samples, int64_t count) {
  std::vector<int64_t> sizes = samples.shape;
  sizes.insert(sizes.begin(), count);
  const auto type = samples.type == ElementType::float32 ? at::kFloat
                    : samples.type == ElementType::int64 ? at::kLong
                                                         : at::kByte;
  return at::from_blob(const_cast<uint8_t*>(samples.bytes.data()), sizes, type);
}

/// Returns the options of a shard that reads samples in their order.
inline SamplerOptions in_order(int64_t num_shards = 1, int64_t shard = 0) {
  SamplerOptions options;
  options.num_shards = num_shards;
  options.shard = shard;
  options.shuffle = false;
  return options;
}

/// Returns the label of each sample.
inline std::vector<int64_t> labels_of(const Dataset& data) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < data.size; ++i) {
    labels.push_back(data.targets.integer(data.place_of(i)));
  }
  return labels;
}

}  // namespace tandem
