#include "tandem/train/scatter.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

enum Fact {
  kSize,
  kTestSize,
  kChannels,
  kHeight,
  kWidth,
  kClasses,
  kLoadable,
  kNumFacts
};

at::Tensor bytes_of(int64_t count) {
  return at::empty({count}, at::kByte);
}

Bytes shared_bytes(const at::Tensor& bytes) {
  const auto* data = bytes.data_ptr<uint8_t>();
  return {
      std::shared_ptr<const uint8_t>(std::make_shared<const at::Tensor>(bytes), data),
      static_cast<size_t>(bytes.numel())};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = text.find('\n', from);
    lines.push_back(text.substr(from, end - from));
    from = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

DataHashes hashes_to_all(const Dataset& whole, Communicator& comm) {
  const auto mine = comm.rank() == 0 ? hashes_of(whole) : DataHashes();
  return {
      comm.broadcast_text(mine.images, 0, "data"),
      comm.broadcast_text(mine.labels, 0, "data")};
}

// Returns the sizes and names of the data on all ranks, without samples.
DatasetSplits describe_to_all(const DatasetSplits& whole, Communicator& comm) {
  auto facts = at::empty({kNumFacts}, at::kLong);
  auto* fact = facts.data_ptr<int64_t>();
  fact[kSize] = whole.train.size;
  fact[kTestSize] = whole.test.size;
  fact[kChannels] = whole.train.channels;
  fact[kHeight] = whole.train.height;
  fact[kWidth] = whole.train.width;
  fact[kClasses] = whole.train.num_classes;
  fact[kLoadable] = whole.train.is_loadable ? 1 : 0;
  comm.broadcast(facts, 0, "data")->wait();
  Dataset part;
  part.name = comm.broadcast_text(whole.train.name, 0, "data");
  part.class_names =
      lines_of(comm.broadcast_text(join(whole.train.class_names, "\n"), 0, "data"));
  part.channels = fact[kChannels];
  part.height = fact[kHeight];
  part.width = fact[kWidth];
  part.num_classes = fact[kClasses];
  part.is_loadable = fact[kLoadable] != 0;
  DatasetSplits splits{part, part};
  splits.train.size = fact[kSize];
  splits.test.size = fact[kTestSize];
  splits.test.name = comm.broadcast_text(whole.test.name, 0, "data");
  splits.train.hashes = hashes_to_all(whole.train, comm);
  splits.test.hashes = hashes_to_all(whole.test, comm);
  return splits;
}

// Returns the bytes of the `count` samples with the indices `samples`, `width` bytes
// per sample.
at::Tensor in_order(
    const Bytes& from, const int64_t* samples, int64_t count, int64_t width) {
  auto bytes = bytes_of(count * width);
  auto* to = bytes.data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(
        to + i * width, from.data() + samples[i] * width, static_cast<size_t>(width));
  }
  return bytes;
}

Bytes share_of(
    const Bytes& whole, const at::Tensor& order, int64_t share, int64_t width,
    Communicator& comm) {
  at::Tensor all;
  if (comm.rank() == 0) {
    all = in_order(whole, order.data_ptr<int64_t>(), share * comm.size(), width);
  }
  const auto mine = bytes_of(share * width);
  comm.scatter(mine, all, 0, "data")->wait();
  return shared_bytes(mine);
}

Bytes copy_to_all(const Bytes& whole, int64_t bytes, Communicator& comm) {
  const auto copy = bytes_of(bytes);
  if (comm.rank() == 0) {
    // If the data are limited, `whole` is longer than `bytes`.
    std::memcpy(copy.data_ptr(), whole.data(), static_cast<size_t>(bytes));
  }
  comm.broadcast(copy, 0, "data")->wait();
  return comm.rank() == 0 ? whole : shared_bytes(copy);
}

}  // namespace

DatasetSplits scatter_dataset(
    const std::function<DatasetSplits()>& load, uint64_t seed, Communicator& comm) {
  if (comm.size() == 1) {
    return load();
  }
  const auto whole = comm.rank() == 0 ? load() : DatasetSplits();
  auto splits = describe_to_all(whole, comm);
  auto& train = splits.train;
  const int64_t share = train.size / comm.size();
  const int64_t left_out = train.size % comm.size();
  if (share == 0) {
    throw DataError(fmt::format(
        "[data] {} samples cannot be split among {} ranks; use fewer ranks", train.size,
        comm.size()));
  }
  if (left_out > 0 && comm.rank() == 0) {
    log_info(fmt::format(
        "{} of {} samples are left out: {} ranks have {} each", left_out, train.size,
        comm.size(), share));
  }
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto order = at::randperm(train.size, generator, at::kLong);
  train.size = share * comm.size();
  train.num_shares = comm.size();
  train.first_held = comm.rank() * share;
  train.pixels = share_of(whole.train.pixels, order, share, train.image_bytes(), comm);
  train.labels = share_of(whole.train.labels, order, share, 1, comm);
  auto& test = splits.test;
  test.pixels = copy_to_all(whole.test.pixels, test.size * test.image_bytes(), comm);
  test.labels = copy_to_all(whole.test.labels, test.size, comm);
  return splits;
}

}  // namespace tandem
