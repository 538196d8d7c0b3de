#include "tandem/parallel/ddp/local_sgd.h"

#include <string>

#include "tandem/base/error.h"
#include "tandem/config/fields.h"
#include "tandem/parallel/reduce/replicas.h"

namespace tandem {

namespace {

// The layout of `tandem train`, because sums over Gloo depend on the layout.
ModelArenaOptions arena_options(const Communicator& comm) {
  ModelArenaOptions options;
  options.divisor = comm.size();
  options.bucket_bytes = StrategyOptions().largest_bucket();
  return options;
}

}  // namespace

LocalSgd::LocalSgd(
    const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers,
    Communicator& comm, const LocalSgdOptions& options)
    : comm_(comm),
      options_(options),
      arenas_(parameters, buffers, arena_options(comm)) {
  if (options.average_every < 1) {
    throw ConfigError(
        "[local sgd] average_every is " + std::to_string(options.average_every) +
        ", expected at least 1; change LocalSgdOptions::average_every");
  }
  comm.check_equal(
      "LocalSgdOptions", "average_every " + std::to_string(options.average_every) +
                             ", average_buffers " +
                             (options.average_buffers ? "true" : "false") +
                             ", outer_optimizer " + name_of(options.outer_optimizer));
  start_alike(comm, arenas_);
  if (options.outer_optimizer == OuterOptimizer::nesterov) {
    StrategyOptions checked;
    checked.kind = StrategyKind::averaging;
    checked.outer_optimizer = options.outer_optimizer;
    checked.outer_lr = options.outer_lr;
    checked.outer_momentum = options.outer_momentum;
    check_options(checked);
    outer_.emplace(arenas_.parameters(), options.outer_lr, options.outer_momentum);
    outer_->begin();
  }
}

void LocalSgd::step() {
  ++steps_since_average_;
  if (steps_since_average_ == options_.average_every) {
    average();
  }
}

// Averages at most once, because the rounded mean of equal numbers may differ from
// these numbers.
void LocalSgd::average() {
  if (steps_since_average_ > 0) {
    average_state(comm_, arenas_, options_.average_buffers);
    if (outer_) {
      outer_->step();
    }
    steps_since_average_ = 0;
  }
}

std::vector<NamedTensor> LocalSgd::state() const {
  return outer_ ? outer_->state() : std::vector<NamedTensor>();
}

}  // namespace tandem
