// The gathering kernel against data/loader.h, bit for bit.

#include "tandem/kernels/cuda/gather.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/data/loader.h"
#include "tests/cuda/orders.h"

namespace tandem::gather_test {

struct Shape {
  int64_t channels, height, width, pad;
};

Dataset made_of(const Shape& shape, int64_t size) {
  Dataset dataset;
  dataset.size = size;
  dataset.channels = shape.channels;
  dataset.height = shape.height;
  dataset.width = shape.width;
  dataset.num_classes = 10;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  for (int64_t i = 0; i < size * dataset.image_bytes(); ++i) {
    pixels.push_back(static_cast<uint8_t>(i * 89 + i / 251));
  }
  for (int64_t i = 0; i < size; ++i) {
    labels.push_back(static_cast<uint8_t>(i * 7 % 10));
  }
  dataset.pixels = std::move(pixels);
  dataset.labels = std::move(labels);
  return dataset;
}

std::vector<float> table_of(const LoaderOptions& options) {
  const Normaliser normaliser(options.mean, options.std);
  std::vector<float> table;
  for (int p = 0; p < 256; ++p) {
    table.push_back(normaliser(static_cast<uint8_t>(p)));
  }
  return table;
}

// All micro-batches of a shard's epoch, the last of which is smaller.
void expect_the_loaders_batches(const Shape& shape) {
  const Dataset dataset = made_of(shape, 23);
  SamplerOptions sampler;
  sampler.size = dataset.size;
  sampler.num_shards = 2;
  sampler.shard = 1;
  LoaderOptions options;
  options.batch_size = 3;
  options.micro_batches = 2;
  options.pad = shape.pad;
  Loader loader(dataset, sampler, options);
  loader.seek(1);

  const auto indices = shard_indices(sampler, 1);
  const auto table = table_of(options);
  const cuda::DeviceImages images{dataset.pixels.data(),
                                  dataset.labels.data(),
                                  0,
                                  shape.channels,
                                  shape.height,
                                  shape.width,
                                  table.data(),
                                  shape.pad};
  int64_t number = 0;
  for (Batch batch; loader.next(batch); ++number) {
    BatchPlace place;
    place.first_index = number / 2 * 6 + number % 2;
    place.index_stride = 2;
    std::vector<float> inputs(static_cast<size_t>(batch.inputs.numel()), -7);
    std::vector<int64_t> targets(static_cast<size_t>(batch.count()), -7);
    cuda::gather_batch(
        images, indices.data(), &place, batch.count(), inputs.data(), targets.data(),
        nullptr);
    EXPECT_TRUE(same_bits(inputs, batch.inputs.data_ptr<float>()));
    EXPECT_TRUE(same_bits(targets, batch.targets.data_ptr<int64_t>()));
  }
  EXPECT_EQ(number, 4);
}

TEST(GatherKernel, MakesTheLoadersBatches) {
  in_orders([] {
    // Less than a warp, more than a tile, a tile; borders.
    for (const auto& shape : std::vector<Shape>{
             {1, 1, 1, 0},
             {3, 5, 7, 0},
             {3, 5, 7, 2},
             {1, 28, 28, 2},
             {3, 32, 32, 0},
             {2, 32, 32, 0},
             {3, 30, 31, 1}}) {
      SCOPED_TRACE(
          std::to_string(shape.channels) + " x " + std::to_string(shape.height) +
          " x " + std::to_string(shape.width) + ", pad " + std::to_string(shape.pad));
      expect_the_loaders_batches(shape);
    }
  });
}

// Of a shard of data that was scattered, only some images are there.
TEST(GatherKernel, CountsFromTheFirstImageHeld) {
  const Dataset dataset = made_of({1, 2, 2, 0}, 4);
  const auto table = table_of({});
  const cuda::DeviceImages images{
      dataset.pixels.data(), dataset.labels.data(), 100, 1, 2, 2, table.data(), 0};
  const std::vector<int64_t> indices = {103, 100};
  const BatchPlace place;
  std::vector<float> inputs(8);
  std::vector<int64_t> targets(2);
  cuda::gather_batch(
      images, indices.data(), &place, 2, inputs.data(), targets.data(), nullptr);
  EXPECT_EQ(targets, (std::vector<int64_t>{dataset.labels.data()[3], 0}));
  EXPECT_EQ(inputs[3], table[dataset.pixels.data()[15]]);
  EXPECT_EQ(inputs[4], table[dataset.pixels.data()[0]]);
  // No images: nothing is read or written.
  cuda::gather_batch(images, nullptr, &place, 0, nullptr, nullptr, nullptr);
}

}  // namespace tandem::gather_test
