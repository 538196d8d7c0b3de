#include "tandem/train/agreement/run_end.h"

#include <ATen/ops/zeros.h>

#include <limits>

#include "tandem/comm/exchange.h"

namespace tandem {

namespace {

enum Value { kLastLoss, kMine, kSome, kAll, kNumValues };

}  // namespace

Convergence::Convergence(Communicator& comm, double min_delta, bool reads)
    : comm_(comm),
      min_delta_(min_delta),
      reads_(reads),
      values_(at::zeros({kNumValues}, at::kDouble)) {
  values()[kLastLoss] = std::numeric_limits<double>::infinity();
}

bool Convergence::note(double loss) {
  if (!wanted()) {
    return false;
  }
  const bool now = !mine() && reads_ && values()[kLastLoss] - loss < min_delta_;
  values()[kLastLoss] = loss;
  values()[kMine] = mine() || now ? 1 : 0;
  auto counts = at::zeros({2}, at::kLong);
  auto* count = counts.data_ptr<int64_t>();
  count[0] = reads_ ? 1 : 0;
  count[1] = mine() ? 1 : 0;
  comm_.all_reduce(counts, ReduceOp::sum, "convergence")->wait();
  values()[kSome] = count[1] > 0 ? 1 : 0;
  values()[kAll] = count[1] == count[0] ? 1 : 0;
  return now;
}

bool Convergence::mine() const {
  return values()[kMine] != 0;
}

bool Convergence::some() const {
  return values()[kSome] != 0;
}

bool Convergence::all() const {
  return values()[kAll] != 0;
}

const char* RunEnd::reason() const {
  return convergence_.all()      ? "converged"
         : patience_.exhausted() ? "patience"
         : stopped_              ? "observer"
                                 : "";
}

void RunEnd::on_step(const StepReport& step) {
  if (observer_ != nullptr && observer_->on_step(step) == Next::stop) {
    stop_requested_ = true;
  }
}

void RunEnd::on_epoch(const EpochReport& epoch, bool trained) {
  if (observer_ != nullptr) {
    stop_requested_ =
        (trained && observer_->on_epoch(epoch) == Next::stop) || stop_requested_;
    agree();
  }
}

void RunEnd::on_evaluation(const TestReport& test) {
  if (observer_ != nullptr) {
    stop_requested_ = observer_->on_evaluation(test) == Next::stop || stop_requested_;
    agree();
  }
}

void RunEnd::agree() {
  const int64_t requests =
      reduce_count(stop_requested_ ? 1 : 0, ReduceOp::sum, "observers", comm_);
  stopped_ = stopped_ || requests > 0;
}

}  // namespace tandem
