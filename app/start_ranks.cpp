#include "app/start_ranks.h"

#include "tandem/base/error.h"

namespace tandem::app {

void start_ranks(const LaunchOptions& options) {
  const auto outcome = launch_ranks(options);
  if (outcome.code != 0) {
    throw_for_exit_code(outcome.code, outcome.reason);
  }
}

}  // namespace tandem::app
