#include "tandem/parallel/reduce/grad_reducer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

// Most reductions to owners that run at a time, if the arena releases memory and
// otherwise. Over Gloo, each holds the slices of all ranks; Gloo itself works on two at
// a time.
constexpr size_t kMostWithRelease = 1;
constexpr size_t kMostRunning = 8;

at::Tensor sent_for(Communicator& comm, const at::Tensor& slice, CommHook hook) {
  const auto empty = [&](at::ScalarType dtype) {
    return slice.is_cpu() ? comm.make_buffer(slice.numel(), dtype)
                          : at::empty({slice.numel()}, slice.options().dtype(dtype));
  };
  switch (hook) {
    case CommHook::fp16:
      return empty(at::kHalf);
    case CommHook::bf16:
      return empty(at::kBFloat16);
    default:
      return slice;
  }
}

// A reduction within a shard group, and then between its replicas.
class TwoLevels : public Work {
 public:
  TwoLevels(WorkPtr first, std::function<WorkPtr()> start_second)
      : first_(std::move(first)), start_second_(std::move(start_second)) {}

  bool test() override {
    if (second_ == nullptr && first_->test()) {
      first_->wait();
      second_ = start_second_();
    }
    return second_ != nullptr && second_->test();
  }

  void wait(std::chrono::milliseconds timeout) override {
    if (second_ == nullptr) {
      first_->wait(timeout);
      second_ = start_second_();
    }
    second_->wait(timeout);
  }

 private:
  WorkPtr first_;
  std::function<WorkPtr()> start_second_;
  WorkPtr second_;
};

std::vector<NamedTensor> views_of(
    const Arena& gradients, const std::vector<size_t>& slots) {
  std::vector<NamedTensor> views;
  for (const size_t slot : slots) {
    views.push_back({gradients.layout().slots()[slot].name, gradients.view(slot)});
  }
  return views;
}

}  // namespace

GradReducer::GradReducer(
    Communicator& comm, Arena& gradients, bool during_backward, WireFormat wire,
    SumGoesTo goes_to, Communicator* replicas)
    : comm_(comm),
      gradients_(gradients),
      during_backward_(during_backward),
      wire_(std::move(wire)),
      goes_to_(goes_to),
      replicas_(replicas),
      missing_(buckets().size()),
      works_(buckets().size()),
      arrivals_(buckets().size()),
      bucket_of_slot_(gradients.layout().slots().size(), buckets().size()),
      ready_(bucket_of_slot_.size()) {
  for (size_t i = 0; i < buckets().size(); ++i) {
    const Bucket& bucket = buckets()[i];
    slices_.push_back(
        {i, i + 1 == buckets().size(), gradients.slice(bucket.range),
         views_of(gradients, bucket.slots)});
    sent_.push_back(sent_for(
        comm, slices_.back().flat,
        comm.size() > 1 || replicas != nullptr ? wire_.hook : CommHook::none));
    for (const size_t slot : bucket.slots) {
      bucket_of_slot_[slot] = i;
    }
  }
}

void GradReducer::begin(Trace* trace) {
  trace_ = trace;
  next_ = 0;
  oldest_ = 0;
  std::fill(works_.begin(), works_.end(), nullptr);
  std::fill(ready_.begin(), ready_.end(), false);
  std::fill(arrivals_.begin(), arrivals_.end(), nullptr);
  for (size_t i = 0; i < buckets().size(); ++i) {
    missing_[i] = buckets()[i].slots.size();
  }
}

void GradReducer::gradient_ready(size_t slot) {
  const size_t bucket = bucket_of_slot_[slot];
  ready_[slot] = true;
  if (bucket < buckets().size() && missing_[bucket] > 0) {
    --missing_[bucket];
  }
  while (during_backward_ && next_ < buckets().size() && missing_[next_] == 0) {
    launch_next();
  }
}

void GradReducer::launch_until(size_t count) {
  for (size_t bucket = next_; bucket < count; ++bucket) {
    for (const size_t slot : buckets()[bucket].slots) {
      gradient_ready(slot);
    }
  }
}

void GradReducer::warn_of_unused() {
  if (std::exchange(looked_for_unused_, true)) {
    return;
  }
  std::vector<std::string> names;
  for (size_t slot = 0; slot < ready_.size(); ++slot) {
    if (!ready_[slot] && bucket_of_slot_[slot] < buckets().size()) {
      names.push_back(gradients_.layout().slots()[slot].name);
    }
  }
  if (!names.empty()) {
    log_warning(
        "[parallel] the loss does not depend on " + join(names) +
        "; their gradients count as zero. If this is intended, freeze them "
        "(requires_grad_(false))");
  }
}

void GradReducer::pack(size_t bucket) {
  const auto& slice = slices_[bucket].flat;
  if (!sent_[bucket].is_same(slice)) {
    sent_[bucket].copy_(wire_.scale == 1 ? slice : slice.mul(wire_.scale));
  }
}

void GradReducer::unpack(size_t bucket) {
  const auto& slice = slices_[bucket].flat;
  if (!sent_[bucket].is_same(slice)) {
    auto part = summed_part(bucket, slice);
    part.copy_(summed_part(bucket, sent_[bucket]));
    if (wire_.scale != 1) {
      part.div_(wire_.scale);
    }
  }
}

// Returns the part of a bucket's tensor in which this rank gets the sum.
at::Tensor GradReducer::summed_part(size_t bucket, const at::Tensor& flat) const {
  if (goes_to_ == SumGoesTo::all_ranks) {
    return flat;
  }
  const auto part = buckets()[bucket].part(comm_.rank(), comm_.size());
  return flat.narrow(0, part.begin - buckets()[bucket].range.begin, part.size());
}

std::function<void()> GradReducer::sum(size_t bucket) {
  const auto& sent = sent_[bucket];
  const auto label = "bucket " + std::to_string(bucket);
  auto work = goes_to_ == SumGoesTo::all_ranks
                  ? comm_.all_reduce(sent, ReduceOp::sum, label)
                  : comm_.reduce_scatter(summed_part(bucket, sent), sent, label);
  if (replicas_ != nullptr) {
    work = std::make_shared<TwoLevels>(
        std::move(work), [this, part = summed_part(bucket, sent), label] {
          return replicas_->all_reduce(part, ReduceOp::sum, label);
        });
  }
  works_[bucket] = work;
  return [this, bucket, work = std::move(work)] {
    work->wait();
    unpack(bucket);
  };
}

void GradReducer::launch_next() {
  const size_t bucket = next_++;
  const TraceSpan span(
      trace_, "reduce", "bucket ", std::to_string(bucket),
      static_cast<int64_t>(sent_[bucket].nbytes()));
  pack(bucket);
  arrivals_[bucket] = wire_.own ? wire_.own(comm_, slices_[bucket]) : sum(bucket);
  free_memory();
}

// Stores results that have arrived, because running reductions hold memory. Waits until
// few reductions are running.
void GradReducer::free_memory() {
  const size_t most = gradients_.releases() ? kMostWithRelease : kMostRunning;
  while (oldest_ < next_ && goes_to_ == SumGoesTo::owners &&
         (next_ - oldest_ > most || (works_[oldest_] && works_[oldest_]->test()))) {
    arrive_next();
  }
}

void GradReducer::arrive_next() {
  const auto& bucket = buckets()[oldest_];
  if (const auto arrival = std::exchange(arrivals_[oldest_], nullptr)) {
    arrival();
  }
  works_[oldest_++] = nullptr;
  if (gradients_.releases() && goes_to_ == SumGoesTo::owners) {
    gradients_.release_except(bucket.range, bucket.part(comm_.rank(), comm_.size()));
  }
}

void GradReducer::finish() {
  const TraceSpan span(trace_, "reduce", "finish reductions");
  while (next_ < buckets().size()) {
    launch_next();
  }
  while (oldest_ < buckets().size()) {
    arrive_next();
  }
}

}  // namespace tandem
