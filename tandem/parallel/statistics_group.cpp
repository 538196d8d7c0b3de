#include "tandem/parallel/statistics_group.h"

namespace tandem {

at::Tensor StatisticsGroup::stack(const at::Tensor& mine) {
  if (!group_) {
    group_ = comm_.split(0);
  }
  return group_->stack(mine, "batch norm statistics");
}

CommStats StatisticsGroup::stats() const {
  return group_ ? group_->stats() : CommStats();
}

}  // namespace tandem
