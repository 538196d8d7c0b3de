#include "tandem/parallel/update/sharded_parameters.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/parallel/reduce/replicas.h"

namespace tandem {

namespace {

bool contains(const std::vector<size_t>& all, const std::vector<size_t>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

std::vector<size_t> united(std::vector<size_t> all, const std::vector<size_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

ShardedParameters::ShardedParameters(Communicator& comm, Arena& parameters)
    : comm_(comm), parameters_(parameters) {
  for (const auto& bucket : buckets()) {
    (void)bucket.part(comm.rank(), comm.size());
    const int64_t segment = bucket.range.segment;
    segments_[parameters.segment(segment).storage().unsafeGetStorageImpl()] = segment;
  }
}

void ShardedParameters::distribute(Communicator& all) {
  const Pause pause;
  are_complete_ = false;
  for (const auto& bucket : buckets()) {
    all.broadcast(parameters_.slice(bucket.range), 0, parameters_.name())->wait();
    parameters_.release_except(bucket.range, bucket.part(comm_.rank(), comm_.size()));
  }
  const auto& layout = parameters_.layout();
  for (const auto& range : layout.ranges()) {
    if (!layout.segments()[static_cast<size_t>(range.segment)].trainable) {
      all.broadcast(parameters_.slice(range), 0, parameters_.name())->wait();
    }
  }
}

void ShardedParameters::release() {
  const Pause pause;
  are_complete_ = false;
  gathered_.clear();
  for (const auto& bucket : buckets()) {
    parameters_.release_except(bucket.range, bucket.part(comm_.rank(), comm_.size()));
  }
}

void ShardedParameters::gather() {
  const Pause pause;
  gather_parts(comm_, parameters_);
  are_complete_ = true;
}

StepSums ShardedParameters::pass(
    Pass kind, const GradReducer* reducer, const std::function<StepSums()>& body) {
  Uses& uses = kind == Pass::training ? training_ : evaluation_;
  begin(uses);
  reducer_ = reducer;
  StepSums sums;
  {
    std::optional<Scope> scope;
    if (!outside_) {
      scope.emplace(static_cast<CallListener&>(*this));
    }
    sums = body();
  }
  uses.learned = true;
  end();
  return sums;
}

void ShardedParameters::end_forward() {
  current_->forward = used_;
}

void ShardedParameters::pass_without_batch(Pass kind, GradReducer* reducer) {
  Uses uses = kind == Pass::training || !evaluation_.learned ? training_ : evaluation_;
  if (!uses.learned) {
    throw ConfigError(
        "[parallel] rank " + std::to_string(comm_.rank()) +
        " has no sample in the first step, expected at least one sample per rank and "
        "micro-batch with --shard parameters; lower --nproc or --accumulate");
  }
  if (kind == Pass::evaluation && !evaluation_.learned) {
    uses.list.resize(uses.forward);
  }
  begin(uses);
  for (size_t i = 0; i < uses.list.size(); ++i) {
    if (reducer != nullptr) {
      reducer->launch_until(uses.list[i].launched);
    }
    arrange(uses, i);
  }
  end();
}

void ShardedParameters::call_operator(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    std::vector<c10::IValue>& stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  of_call_.clear();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    if (value.isTensor()) {
      note(value.toTensor(), op);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          note(element.toTensor(), op);
        }
      }
    }
    if (!of_call_.empty() && is_written(arguments[i]) && value.isTensor()) {
      throw ConfigError(
          "[parallel] " + op.schema().name() +
          " changes a parameter in the forward pass, which --shard parameters does not "
          "support; use --shard gradients");
    }
  }
  if (!of_call_.empty()) {
    use(united({}, of_call_), op.schema().name());
  }
  op.redispatchBoxed(keys, &stack);
}

// Adds the buckets whose elements the tensor has. Outside of passes, throws if the
// tensor is not complete.
void ShardedParameters::note(const at::Tensor& tensor, const c10::OperatorHandle& op) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) {
    return;
  }
  const auto found = segments_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == segments_.end()) {
    return;
  }
  const int64_t segment = found->second;
  const int64_t begin =
      tensor.storage_offset() - parameters_.segment(segment).storage_offset();
  int64_t last = begin;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  for (size_t i = 0; i < buckets().size(); ++i) {
    const auto& range = buckets()[i].range;
    if (range.segment != segment || begin >= range.end || last < range.begin) {
      continue;
    }
    if (current_ != nullptr) {
      of_call_.push_back(i);
    } else if (!are_complete_) {
      check_own(i, begin, last, op.schema().name());
    }
  }
}

// Throws unless the elements [begin, last] are in this rank's part.
void ShardedParameters::check_own(
    size_t bucket, int64_t begin, int64_t last, const std::string& op) const {
  const auto part = buckets()[bucket].part(comm_.rank(), comm_.size());
  if (begin < part.begin || last >= part.end) {
    throw ConfigError(
        "[ddp] " + op +
        " uses a parameter of which this rank has only a part, outside of a pass; call "
        "it in DistributedDataParallel::pass() or evaluation_pass(), or call "
        "gather_parameters() before");
  }
}

void ShardedParameters::use(std::vector<size_t> buckets, const std::string& op) {
  auto& list = current_->list;
  if (used_ > 0 && contains(list[used_ - 1].buckets, buckets)) {
    return;
  }
  if (!current_->learned) {
    list.push_back({std::move(buckets), 0});
  } else if (used_ == list.size() || list[used_].buckets != buckets) {
    throw ConfigError(
        "[parallel] " + op +
        " uses another parameter than in the first step, but --shard parameters needs "
        "the same order in every step; use --shard gradients");
  }
  if (reducer_ != nullptr) {
    list[used_].launched = reducer_->num_launched();
  }
  arrange(*current_, used_++);
}

void ShardedParameters::begin(Uses& uses) {
  const Pause pause;
  are_complete_ = false;
  release_except({});
  current_ = &uses;
  used_ = 0;
}

// Makes the buckets of a use complete. Releases the buckets that neither this use nor
// its neighbour needs: the next use if it is known, otherwise the last one. In both
// cases, buckets are gathered in the same order.
void ShardedParameters::arrange(const Uses& uses, size_t index) {
  const Pause pause;
  const Use& use = uses.list[index];
  const bool has_next = index + 1 < uses.list.size();
  const bool knows_next = uses.learned && has_next;
  const size_t neighbour = knows_next ? index + 1 : index - (index > 0 ? 1 : 0);
  release_except(united(use.buckets, uses.list[neighbour].buckets));
  start_gathering(use);
  if (knows_next) {
    start_gathering(uses.list[index + 1]);
  }
  finish_gathering(use);
}

void ShardedParameters::start_gathering(const Use& use) {
  for (const size_t bucket : use.buckets) {
    if (gathered_.count(bucket) == 0) {
      gathered_[bucket] =
          comm_.all_gather(whole(bucket), mine(bucket), parameters_.name());
    }
  }
}

void ShardedParameters::finish_gathering(const Use& use) {
  for (const size_t bucket : use.buckets) {
    if (const auto work = std::exchange(gathered_[bucket], nullptr)) {
      work->wait();
    }
  }
}

void ShardedParameters::release_except(const std::vector<size_t>& kept) {
  for (auto entry = gathered_.begin(); entry != gathered_.end();) {
    if (std::binary_search(kept.begin(), kept.end(), entry->first)) {
      ++entry;
      continue;
    }
    if (entry->second) {
      entry->second->wait();
    }
    const Bucket& bucket = buckets()[entry->first];
    parameters_.release_except(bucket.range, bucket.part(comm_.rank(), comm_.size()));
    entry = gathered_.erase(entry);
  }
}

void ShardedParameters::end() {
  const Pause pause;
  release_except({});
  current_ = nullptr;
  reducer_ = nullptr;
}

}  // namespace tandem
