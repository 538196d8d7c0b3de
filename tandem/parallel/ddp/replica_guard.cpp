#include "tandem/parallel/ddp/replica_guard.h"

#include <ATen/ops/tensor.h>
#include <fmt/core.h>

#include <exception>
#include <map>
#include <numeric>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/fingerprint.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/parallel/reduce/replicas.h"

namespace tandem {

namespace {

// Columns of the table that ranks compare, with one row per rank.
enum Column : int64_t {
  kParameters,
  kGradients,
  // 1 for a rank that read training samples, but ran no backward of the wrapped module.
  kReadOnly,
  // 1 for a rank with a ReadRecord. The remaining columns are 0 without one.
  kHasRecord,
  kShard,
  // Settings of samplers, which must be equal on all ranks.
  kNumShards,
  kSize,
  kSeed,
  kShuffle,
  kTail,
  kBlocks,
  kDividedBatch,
  kFirstPosition,
  kEpoch,
  kBatchSize,
  kNumColumns
};

struct Setting {
  Column column;
  const char* name;
};
constexpr Setting kSettings[] = {
    {kNumShards, "num_shards"},
    {kSize, "size"},
    {kSeed, "seed"},
    {kShuffle, "shuffle"},
    {kTail, "tail"},
    {kBlocks, "blocks"},
    {kDividedBatch, "batch"},
    {kFirstPosition, "first_position"},
    {kEpoch, "epoch"},
    {kBatchSize, "batch size"}};

constexpr const char* kNoCheck =
    "set DistributedDataParallelOptions::check_samples to false";

constexpr const char* kNotTrained =
    " read training samples, but ran no backward of the wrapped module; train the "
    "module that was passed to DistributedDataParallel, not a copy of it";

uint64_t fingerprint_of(const at::Tensor& tensor) {
  const auto values = tensor.detach().contiguous().cpu();
  return fingerprint(values.data_ptr(), values.nbytes());
}

// The ranks with each value of a column.
using Groups = std::map<int64_t, std::vector<int>>;

Groups groups_of(const at::Tensor& rows, Column column, const std::vector<int>& ranks) {
  Groups groups;
  for (const int rank : ranks) {
    groups[rows.data_ptr<int64_t>()[rank * kNumColumns + column]].push_back(rank);
  }
  return groups;
}

// Returns a text such as "0 on ranks 0 and 2, 7 on rank 1".
std::string describe(const Groups& groups) {
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : groups) {
    parts.push_back(std::to_string(value) + " on " + with_numbers("rank", ranks));
  }
  return join(parts);
}

std::vector<int> all_ranks(const at::Tensor& rows) {
  std::vector<int> ranks(static_cast<size_t>(rows.size(0)));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Returns the ranks with 1 in a column.
std::vector<int> ranks_with(const at::Tensor& rows, Column column) {
  return groups_of(rows, column, all_ranks(rows))[1];
}

void check_trained(const at::Tensor& rows) {
  const auto ranks = ranks_with(rows, kReadOnly);
  if (!ranks.empty()) {
    throw Error("[ddp] " + with_numbers("rank", ranks) + kNotTrained);
  }
}

void check_samplers(const at::Tensor& rows) {
  const auto ranks = ranks_with(rows, kHasRecord);
  const auto divisions = groups_of(rows, kNumShards, ranks);
  const bool undivided = divisions.size() == 1 && divisions.begin()->first == 1;
  if (undivided && groups_of(rows, kSize, ranks).size() > 1) {
    return;  // Each rank has a data set of its own.
  }
  for (const auto& [shard, same] : groups_of(rows, kShard, ranks)) {
    if (undivided && same.size() > 1) {
      throw Error(fmt::format(
          "[ddp] {} read all samples: num_shards of their samplers is 1, expected {}; "
          "set num_shards and shard, or, if each rank has its own data, {}",
          with_numbers("rank", same), rows.size(0), kNoCheck));
    }
    if (same.size() > 1) {
      throw Error(fmt::format(
          "[ddp] {} read the same samples: shard of their samplers is {}, expected a "
          "different shard on each rank; set shard to the rank",
          with_numbers("rank", same), shard));
    }
  }
  for (const auto& [column, name] : kSettings) {
    const auto groups = groups_of(rows, column, ranks);
    if (groups.size() > 1) {
      throw Error(fmt::format(
          "[ddp] {} of the samplers is {}, expected one value; give all ranks the same "
          "samplers and numbers of steps, or {}",
          name, describe(groups), kNoCheck));
    }
  }
}

void warn_of_equal_gradients(const at::Tensor& rows) {
  for (const auto& [value, ranks] : groups_of(rows, kGradients, all_ranks(rows))) {
    if (value != 0 && ranks.size() > 1) {
      log_warning(
          "[ddp] " + with_numbers("rank", ranks) +
          " had equal gradients in the first backward, so they probably read the same "
          "samples; divide the samples with shard_indices()");
    }
  }
}

}  // namespace

ReplicaGuard::ReplicaGuard(
    Communicator& comm, ModelArenas& arenas, const ReplicaGuardOptions& options)
    : comm_(comm),
      arenas_(arenas),
      options_(options),
      reads_(reads_of_this_thread()),
      reads_before_(reads_->num_reads),
      exceptions_before_(std::uncaught_exceptions()) {
  if (options.check_every < 0) {
    throw ConfigError(fmt::format(
        "[ddp] check_every is {}, expected 0 or more; change it", options.check_every));
  }
  comm.check_equal(
      "check_every, check_samples or drift_check",
      fmt::format(
          "{} {} {}", options.check_every, options.check_samples,
          name_of(options.drift_check)));
}

ReplicaGuard::~ReplicaGuard() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_before_;
  if (num_backwards_ > 0 || checked_ || unwinding || comm_.size() == 1 ||
      !options_.check_samples) {
    return;
  }
  const auto rank = "[ddp] rank " + std::to_string(comm_.rank());
  if (read_samples_only()) {
    log_error(rank + kNotTrained);
  } else {
    log_warning(
        rank +
        " ran no backward of the module that was passed to DistributedDataParallel; if "
        "the rank trained, it trained another module");
  }
}

void ReplicaGuard::add_to_fingerprint(size_t slot, const at::Tensor& gradient) {
  if (gradient.any().item<bool>()) {
    // The order of the slots has no effect.
    gradients_ += mix(fingerprint_of(gradient), slot);
  }
}

bool ReplicaGuard::read_samples_only() const {
  return num_backwards_ == 0 && reads_->num_reads > reads_before_;
}

void ReplicaGuard::end_backward() {
  ++num_reduced_;
  const int64_t every = options_.check_every;
  const bool is_power_of_two = (num_reduced_ & (num_reduced_ - 1)) == 0;
  if (every > 0 &&
      (num_reduced_ % every == 0 || (is_power_of_two && num_reduced_ < every))) {
    compare(fmt::format("in backward {}", num_reduced_));
  }
}

void ReplicaGuard::check() {
  checked_ = true;
  compare(fmt::format("after {} backwards", num_reduced_));
}

at::Tensor ReplicaGuard::own_row() const {
  std::vector<int64_t> row(kNumColumns, 0);
  if (options_.drift_check != DriftCheck::off) {
    uint64_t hash = 0;
    for (const auto& range : arenas_.parameters().layout().ranges()) {
      hash = mix(hash, fingerprint_of(arenas_.parameters().slice(range)));
    }
    row[kParameters] = static_cast<int64_t>(hash);
  }
  row[kGradients] = num_reduced_ == 1 ? static_cast<int64_t>(gradients_) : 0;
  row[kReadOnly] = read_samples_only() ? 1 : 0;
  if (options_.check_samples && reads_->num_reads > reads_before_) {
    const auto& sampler = reads_->sampler;
    row[kHasRecord] = 1;
    row[kShard] = sampler.shard;
    row[kNumShards] = sampler.num_shards;
    row[kSize] = sampler.size;
    row[kSeed] = static_cast<int64_t>(sampler.seed);
    row[kShuffle] = sampler.shuffle ? 1 : 0;
    row[kTail] = static_cast<int64_t>(sampler.tail);
    row[kBlocks] = sampler.blocks;
    row[kDividedBatch] = sampler.batch;
    row[kFirstPosition] = sampler.first_position;
    row[kEpoch] = reads_->epoch;
    row[kBatchSize] = reads_->batch_size;
  }
  return at::tensor(row, at::kLong);
}

void ReplicaGuard::compare(const std::string& when) {
  const bool compares =
      options_.drift_check != DriftCheck::off || options_.check_samples;
  if (comm_.size() == 1 || !compares) {
    return;
  }
  const auto rows = comm_.stack(own_row(), "comparison of replicas");
  if (options_.check_samples) {
    check_trained(rows);
    check_samplers(rows);
    if (comm_.rank() == 0) {
      warn_of_equal_gradients(rows);
    }
  }
  compare_parameters(rows, when);
}

void ReplicaGuard::compare_parameters(const at::Tensor& rows, const std::string& when) {
  const auto hashes = rows.select(1, kParameters);
  if (hashes.eq(hashes[0]).all().item<bool>()) {
    return;
  }
  const Drift drift = find_drift(comm_, arenas_);
  const auto found = fmt::format(
      "[ddp] parameter '{}' differs between rank 0 and {} {}", drift.parameter,
      with_numbers("rank", drift.ranks), when);
  if (options_.drift_check == DriftCheck::resync) {
    if (comm_.rank() == 0) {
      log_warning(found + "; all ranks continue with rank 0's parameters");
    }
    broadcast_arena(comm_, arenas_.parameters());
    return;
  }
  throw Error(
      found +
      "; use the same optimizer and learning rate on all ranks, and change parameters "
      "on all ranks or before DistributedDataParallel is made");
}

}  // namespace tandem
