#include "tandem/train/scatter.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <fmt/core.h>

#include <cstring>
#include <limits>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/data/description.h"

namespace tandem {

namespace {

at::Tensor bytes_of(int64_t count) {
  return at::empty({count}, at::kByte);
}

Bytes shared_bytes(const at::Tensor& bytes) {
  const auto* data = bytes.data_ptr<uint8_t>();
  return {
      std::shared_ptr<const uint8_t>(std::make_shared<const at::Tensor>(bytes), data),
      static_cast<size_t>(bytes.numel())};
}

// Returns the data set of rank 0 on all ranks, without samples.
Dataset describe_to_all(const Dataset& whole, Communicator& comm) {
  std::istringstream text(
      comm.broadcast_text(comm.rank() == 0 ? describe(whole) : "", 0, "data"));
  const auto data = read_description(text, std::numeric_limits<size_t>::max());
  TANDEM_CHECK(data.has_value(), "rank 0 sent another description");
  return *data;
}

// Returns the bytes of `count` samples: inputs or targets of `whole`. `order` has the
// numbers of the samples; null: the first samples.
at::Tensor in_order(
    const Dataset& whole, Samples Dataset::*part, const int64_t* order, int64_t count) {
  const Samples& from = whole.*part;
  const int64_t width = from.sample_bytes();
  auto bytes = bytes_of(count * width);
  auto* to = bytes.data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = order == nullptr ? i : order[i];
    std::memcpy(
        to + i * width, from.at(whole.place_of(sample)), static_cast<size_t>(width));
  }
  return bytes;
}

// Sets the inputs and targets of `mine` to this rank's share of `whole`, of `each`
// samples. Only rank 0 needs `whole`.
void scatter_samples(
    Dataset& mine, const Dataset& whole, const at::Tensor& order, int64_t each,
    Communicator& comm) {
  for (Samples Dataset::*const part : {&Dataset::inputs, &Dataset::targets}) {
    at::Tensor all;
    if (comm.rank() == 0) {
      all = in_order(whole, part, order.data_ptr<int64_t>(), each * comm.size());
    }
    const auto bytes = bytes_of((mine.*part).bytes_of(each));
    comm.scatter(bytes, all, 0, "data")->wait();
    (mine.*part).bytes = shared_bytes(bytes);
  }
}

// Returns the data set of rank 0 on all ranks.
Dataset copy_to_all(const Dataset& whole, Communicator& comm) {
  Dataset copy = describe_to_all(whole, comm);
  for (Samples Dataset::*const part : {&Dataset::inputs, &Dataset::targets}) {
    const auto bytes = comm.rank() == 0 ? in_order(whole, part, nullptr, copy.size)
                                        : bytes_of((copy.*part).bytes_of(copy.size));
    comm.broadcast(bytes, 0, "data")->wait();
    (copy.*part).bytes = shared_bytes(bytes);
  }
  return copy;
}

}  // namespace

DatasetSplits scatter_dataset(
    const std::function<DatasetSplits()>& load, uint64_t seed, Communicator& comm) {
  if (comm.size() == 1) {
    return load();
  }
  const auto whole = comm.rank() == 0 ? load() : DatasetSplits();
  DatasetSplits splits;
  splits.train = describe_to_all(whole.train, comm);
  auto& train = splits.train;
  const int64_t each = train.size / comm.size();
  const int64_t left_out = train.size % comm.size();
  if (each == 0) {
    throw DataError(fmt::format(
        "[data] {} cannot be split among {}; use fewer ranks",
        counted(train.size, "sample"), counted(comm.size(), "rank")));
  }
  if (left_out > 0 && comm.rank() == 0) {
    log_info(fmt::format(
        "{} of {} samples are left out: {} ranks have {} each", left_out, train.size,
        comm.size(), each));
  }
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto order = at::randperm(train.size, generator, at::kLong);
  train.size = each * comm.size();
  train.num_shares = comm.size();
  train.first_held = comm.rank() * each;
  train.is_sequence = false;
  scatter_samples(train, whole.train, order, each, comm);
  splits.test = copy_to_all(whole.test, comm);
  splits.validation = copy_to_all(whole.validation, comm);
  return splits;
}

}  // namespace tandem
