#include "tandem/train/agreement/agreement.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/signals.h"
#include "tandem/comm/exchange.h"

namespace tandem {

namespace {

constexpr double kSecondsBetween = 0.5;
constexpr int64_t kMostSteps = 10'000;
// Maximum number of stored sums. It matters for ranks that do not step together,
// because they agree only at the end of an epoch.
constexpr size_t kMostUnread = 1'000;

// Indices of the values that each rank sends to the other ranks.
enum AgreementField {
  kStop,
  kSave,
  kEnd,
  kShareWritten,
  kBadStep,
  kStepsUntilNext,
  kNumAgreementFields
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

int64_t AgreementTimes::propose(int64_t done) const {
  const double steps = static_cast<double>(std::max<int64_t>(1, done - last_));
  const double wanted =
      steps * kSecondsBetween / std::max(1e-6, seconds_since(last_time_));
  return std::clamp<int64_t>(
      std::llround(std::min(wanted, static_cast<double>(kMostSteps))), 1, kMostSteps);
}

void AgreementTimes::agreed(int64_t done, int64_t steps) {
  next_ = done + steps;
  last_ = done;
  last_time_ = Clock::now();
}

Agreement::Agreement(Communicator& comm, double minutes_between_saves)
    : comm_(comm), minutes_between_saves_(minutes_between_saves) {}

void Agreement::begin(int64_t steps_done) {
  times_ = AgreementTimes(steps_done);
  last_save_ = Clock::now();
}

void Agreement::note_loss(int64_t step, const StepSums& sums) {
  if (!sums.empty()) {
    unread_.push_back({step, sums});
  }
  if (unread_.size() == kMostUnread) {
    read_losses();
  }
}

void Agreement::read_losses() {
  // Copies all sums from the device at once.
  std::vector<at::Tensor> sums;
  for (const auto& unread : unread_) {
    sums.push_back(unread.sums.tensor());
  }
  const auto here = sums.empty() ? at::Tensor() : at::stack(sums).cpu();
  for (size_t i = 0; i < unread_.size() && bad_step_ < 0; ++i) {
    if (!std::isfinite(here.data_ptr<double>()[3 * i])) {
      bad_step_ = unread_[i].step;
    }
  }
  unread_.clear();
}

Decision Agreement::decide(int64_t steps_done, bool end, bool share_written) {
  read_losses();
  const bool minutes_passed = minutes_between_saves_ > 0 &&
                              seconds_since(last_save_) >= 60 * minutes_between_saves_;
  std::vector<int64_t> values(kNumAgreementFields);
  values[kStop] = stop_signal();
  values[kSave] = take_save_request() || (comm_.rank() == 0 && minutes_passed) ? 1 : 0;
  values[kEnd] = end ? 1 : 0;
  values[kShareWritten] = share_written ? 1 : 0;
  values[kBadStep] = bad_step_;
  values[kStepsUntilNext] = times_.propose(steps_done);
  const auto rows = exchange_numbers(values, "agreement", comm_);
  times_.agreed(steps_done, rows[0][kStepsUntilNext]);
  Decision decision;
  decision.shares_written = true;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const auto& row = rows[static_cast<size_t>(rank)];
    if (row[kStop] != 0 && decision.stopping_rank < 0) {
      decision.stopping_rank = rank;
    }
    decision.save = decision.save || row[kSave] != 0;
    decision.end = decision.end || row[kEnd] != 0;
    decision.shares_written = decision.shares_written && row[kShareWritten] != 0;
    if (row[kBadStep] >= 0 &&
        (decision.bad_rank < 0 || row[kBadStep] < decision.bad_step)) {
      decision.bad_step = row[kBadStep];
      decision.bad_rank = rank;
    }
  }
  return decision;
}

void Agreement::saved() {
  last_save_ = Clock::now();
}

}  // namespace tandem
