#include "tandem/parallel/reduce/grad_reducer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

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
    Communicator& comm, Arena& gradients, std::vector<Bucket> buckets,
    bool during_backward, WireFormat wire)
    : comm_(comm),
      gradients_(gradients),
      buckets_(std::move(buckets)),
      during_backward_(during_backward),
      wire_(std::move(wire)),
      missing_(buckets_.size()),
      arrivals_(buckets_.size()),
      bucket_of_slot_(gradients.layout().slots().size(), buckets_.size()),
      ready_(bucket_of_slot_.size()) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    slices_.push_back(
        {i, i + 1 == buckets_.size(), gradients.slice(buckets_[i].range),
         views_of(gradients, buckets_[i].slots)});
    sent_.push_back(sent_for(
        comm, slices_.back().flat, comm.size() > 1 ? wire_.hook : CommHook::none));
    for (const size_t slot : buckets_[i].slots) {
      bucket_of_slot_[slot] = i;
    }
  }
}

void GradReducer::begin(Trace* trace) {
  trace_ = trace;
  next_ = 0;
  std::fill(ready_.begin(), ready_.end(), false);
  std::fill(arrivals_.begin(), arrivals_.end(), nullptr);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    missing_[i] = buckets_[i].slots.size();
  }
}

void GradReducer::gradient_ready(size_t slot) {
  const size_t bucket = bucket_of_slot_[slot];
  ready_[slot] = true;
  if (bucket < buckets_.size() && missing_[bucket] > 0) {
    --missing_[bucket];
  }
  while (during_backward_ && next_ < buckets_.size() && missing_[next_] == 0) {
    launch_next();
  }
}

void GradReducer::warn_of_unused() {
  if (std::exchange(looked_for_unused_, true)) {
    return;
  }
  std::vector<std::string> names;
  for (size_t slot = 0; slot < ready_.size(); ++slot) {
    if (!ready_[slot] && bucket_of_slot_[slot] < buckets_.size()) {
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
  auto& slice = slices_[bucket].flat;
  if (!sent_[bucket].is_same(slice)) {
    slice.copy_(sent_[bucket]);
    if (wire_.scale != 1) {
      slice.div_(wire_.scale);
    }
  }
}

std::function<void()> GradReducer::sum(size_t bucket) {
  auto work = comm_.all_reduce(
      sent_[bucket], ReduceOp::sum, "bucket " + std::to_string(bucket));
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
}

void GradReducer::finish() {
  const TraceSpan span(trace_, "reduce", "finish reductions");
  while (next_ < buckets_.size()) {
    launch_next();
  }
  for (auto& arrival : arrivals_) {
    if (const auto arrive = std::exchange(arrival, nullptr)) {
      arrive();
    }
  }
}

}  // namespace tandem
