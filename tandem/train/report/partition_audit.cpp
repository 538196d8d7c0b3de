#include "tandem/train/report/partition_audit.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/core.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

PartitionAudit::PartitionAudit(Communicator& comm, const SamplerOptions& sampler)
    : comm_(comm), sampler_(sampler), counts_(at::zeros({sampler.size}, at::kInt)) {}

void PartitionAudit::begin(int64_t epoch, int64_t order, int64_t first_position) {
  epoch_ = epoch;
  order_ = order;
  sampler_.first_position = first_position;
  counts_.zero_();
}

void PartitionAudit::add(const at::Tensor& samples) {
  int* counts = counts_.data_ptr<int>();
  const auto* sample = samples.data_ptr<int64_t>();
  for (int64_t i = 0; i < samples.numel(); ++i) {
    ++counts[sample[i]];
  }
}

// Returns the planned number of reads of each sample. Computes it from the sample order
// of a single shard, which contains all positions.
at::Tensor PartitionAudit::planned() const {
  SamplerOptions whole = sampler_;
  whole.num_shards = 1;
  whole.shard = 0;
  whole.first_position = 0;
  whole.tail = Tail::keep;
  const auto order = order_of_shard(whole, order_);
  auto counts = at::zeros({sampler_.size}, at::kInt);
  const int64_t end = end_position(sampler_);
  for (int64_t position = sampler_.first_position; position < end; ++position) {
    ++counts.data_ptr<int>()[order[static_cast<size_t>(position % sampler_.size)]];
  }
  return counts;
}

void PartitionAudit::finish() {
  auto totals = counts_.clone();
  comm_.all_reduce(totals, ReduceOp::sum, "partition audit")->wait();
  // All ranks compare with rank 0's plan, so that all ranks get the same result.
  auto wanted = comm_.rank() == 0 ? planned() : at::zeros_like(totals);
  comm_.broadcast(wanted, 0, "partition audit")->wait();
  if (!totals.equal(wanted)) {
    fail(totals, wanted);
  }
}

void PartitionAudit::fail(const at::Tensor& totals, const at::Tensor& wanted) {
  const auto all = comm_.stack(counts_, "partition audit");
  const auto differs = totals.ne(wanted);
  const int64_t sample = differs.to(at::kInt).argmax().item<int64_t>();
  std::vector<std::string> readers;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (all[rank][sample].item<int>() > 0) {
      readers.push_back(std::to_string(rank));
    }
  }
  throw Error(fmt::format(
      "[data] epoch {}: {} of {} samples were not read as planned, the first of them "
      "sample {}: read {} times (by rank {}), planned {}; give all ranks the same "
      "--seed, --data and --uneven",
      epoch_ + 1, differs.sum().item<int64_t>(), sampler_.size, sample,
      totals[sample].item<int>(), readers.empty() ? "none" : join(readers),
      wanted[sample].item<int>()));
}

}  // namespace tandem
