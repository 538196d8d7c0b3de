#include "tandem/parallel/grad_reducer.h"

#include <algorithm>
#include <string>

namespace tandem {

GradReducer::GradReducer(
    Communicator& comm, Arena& gradients, std::vector<Bucket> buckets,
    bool during_backward)
    : comm_(comm),
      buckets_(std::move(buckets)),
      during_backward_(during_backward),
      missing_(buckets_.size()),
      works_(buckets_.size()),
      bucket_of_slot_(gradients.layout().slots().size(), buckets_.size()) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    slices_.push_back(gradients.slice(buckets_[i].range));
    for (const size_t slot : buckets_[i].slots) {
      bucket_of_slot_[slot] = i;
    }
  }
}

void GradReducer::begin(Trace* trace) {
  trace_ = trace;
  next_ = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    missing_[i] = buckets_[i].slots.size();
  }
}

void GradReducer::gradient_ready(size_t slot) {
  const size_t bucket = bucket_of_slot_[slot];
  if (bucket < buckets_.size() && missing_[bucket] > 0) {
    --missing_[bucket];
  }
  while (during_backward_ && next_ < buckets_.size() && missing_[next_] == 0) {
    launch_next();
  }
}

void GradReducer::launch_next() {
  if (trace_ != nullptr) {
    trace_->mark(
        "comm", "bucket " + std::to_string(next_),
        static_cast<int64_t>(slices_[next_].nbytes()));
  }
  works_[next_] = comm_.all_reduce(
      slices_[next_], ReduceOp::sum, "bucket " + std::to_string(next_));
  ++next_;
}

void GradReducer::finish() {
  while (next_ < buckets_.size()) {
    launch_next();
  }
  for (auto& work : works_) {
    work->wait();
    work.reset();
  }
}

}  // namespace tandem
