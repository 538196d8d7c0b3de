#include "tandem/train/agreement/stop_exchange.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "tandem/comm/exchange.h"

namespace tandem {

namespace {

constexpr std::chrono::milliseconds kBetween{250};

enum GatheringField { kGatheringStop, kLeastArrived, kNumGatheringFields };

}  // namespace

StopExchange::StopExchange(Communicator& comm, std::function<bool()> told)
    : group_(comm.split(0)), told_(std::move(told)) {}

void StopExchange::tell() {
  values_ = at::empty({kNumGatheringFields}, at::kLong);
  auto* values = values_.data_ptr<int64_t>();
  values[kGatheringStop] = told_() ? 1 : 0;
  values[kLeastArrived] = -arrived_;
  under_way_ = group_->all_reduce(values_, ReduceOp::max, "gathering");
  told_at_ = Clock::now();
}

// Waits for the all-reduce in progress and returns its result. A rank that has reached
// a meeting point waits there, so all ranks are there when the last rank reaches it.
StopExchange::News StopExchange::hear() {
  under_way_->wait();
  under_way_.reset();
  const auto* values = values_.data_ptr<int64_t>();
  if (-values[kLeastArrived] > passed_) {
    ++passed_;
    return News::all_here;
  }
  return values[kGatheringStop] != 0 ? News::stop : News::none;
}

bool StopExchange::stops() {
  if (!under_way_ && (told_() || Clock::now() - told_at_ >= kBetween)) {
    tell();
  }
  return under_way_ && under_way_->test() && hear() == News::stop;
}

bool StopExchange::meet() {
  ++arrived_;
  for (;;) {
    if (!under_way_) {
      tell();
    }
    const News news = hear();
    if (news != News::none) {
      return news == News::all_here;
    }
  }
}

Position common_position(const Position& mine, bool first, Communicator& comm) {
  const auto rows = exchange_numbers(
      {mine.step, mine.epoch, mine.step_in_epoch, mine.samples_in_epoch}, "stop", comm);
  // The steps are the first number of a row.
  const auto furthest = std::max_element(
      rows.begin(), rows.end(),
      [](const auto& a, const auto& b) { return a[0] < b[0]; });
  const auto& row = first ? rows[0] : *furthest;
  return {row[1], row[2], row[0], row[3]};
}

}  // namespace tandem
