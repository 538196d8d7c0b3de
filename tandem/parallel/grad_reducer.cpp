#include "tandem/parallel/grad_reducer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>

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

}  // namespace

GradReducer::GradReducer(
    Communicator& comm, Arena& gradients, std::vector<Bucket> buckets,
    bool during_backward, const WireFormat& wire)
    : comm_(comm),
      buckets_(std::move(buckets)),
      during_backward_(during_backward),
      scale_(wire.scale),
      missing_(buckets_.size()),
      works_(buckets_.size()),
      bucket_of_slot_(gradients.layout().slots().size(), buckets_.size()),
      ready_(bucket_of_slot_.size()) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    slices_.push_back(gradients.slice(buckets_[i].range));
    sent_.push_back(
        sent_for(comm, slices_.back(), comm.size() > 1 ? wire.hook : CommHook::none));
    for (const size_t slot : buckets_[i].slots) {
      bucket_of_slot_[slot] = i;
    }
  }
}

void GradReducer::begin(Trace* trace) {
  trace_ = trace;
  next_ = 0;
  std::fill(ready_.begin(), ready_.end(), false);
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

std::vector<size_t> GradReducer::unused_slots() const {
  std::vector<size_t> unused;
  for (size_t slot = 0; slot < ready_.size(); ++slot) {
    if (!ready_[slot] && bucket_of_slot_[slot] < buckets_.size()) {
      unused.push_back(slot);
    }
  }
  return unused;
}

void GradReducer::pack(size_t bucket) {
  const auto& slice = slices_[bucket];
  if (!sent_[bucket].is_same(slice)) {
    sent_[bucket].copy_(scale_ == 1 ? slice : slice.mul(scale_));
  }
}

void GradReducer::unpack(size_t bucket) {
  auto& slice = slices_[bucket];
  if (!sent_[bucket].is_same(slice)) {
    slice.copy_(sent_[bucket]);
    if (scale_ != 1) {
      slice.div_(scale_);
    }
  }
}

void GradReducer::launch_next() {
  pack(next_);
  if (trace_ != nullptr) {
    trace_->mark(
        "comm", "bucket " + std::to_string(next_),
        static_cast<int64_t>(sent_[next_].nbytes()));
  }
  works_[next_] =
      comm_.all_reduce(sent_[next_], ReduceOp::sum, "bucket " + std::to_string(next_));
  ++next_;
}

void GradReducer::finish() {
  while (next_ < buckets_.size()) {
    launch_next();
  }
  for (size_t i = 0; i < works_.size(); ++i) {
    works_[i]->wait();
    works_[i].reset();
    unpack(i);
  }
}

}  // namespace tandem
