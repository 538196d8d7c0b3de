#include "tandem/train/agreement/run_end.h"

#include <ATen/ops/full.h>

namespace tandem {

const char* RunEnd::reason() const {
  return convergence_.all()      ? "converged"
         : patience_.exhausted() ? "patience"
         : stopped_              ? "observer"
                                 : "";
}

void RunEnd::on_step(const StepReport& step) {
  if (observer_ != nullptr && observer_->on_step(step) == Next::stop) {
    wish_ = true;
  }
}

void RunEnd::on_epoch(const EpochReport& epoch, bool trained) {
  if (observer_ != nullptr) {
    wish_ = (trained && observer_->on_epoch(epoch) == Next::stop) || wish_;
    agree();
  }
}

void RunEnd::on_evaluation(const TestReport& test) {
  if (observer_ != nullptr) {
    wish_ = observer_->on_evaluation(test) == Next::stop || wish_;
    agree();
  }
}

void RunEnd::on_checkpoint(const std::string& path) {
  if (observer_ != nullptr) {
    observer_->on_checkpoint(path);
  }
}

void RunEnd::agree() {
  auto wishes = at::full({1}, wish_ ? 1 : 0, at::kLong);
  comm_.all_reduce(wishes, ReduceOp::sum, "observers")->wait();
  stopped_ = stopped_ || wishes.item<int64_t>() > 0;
}

}  // namespace tandem
