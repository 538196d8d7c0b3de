#include "app/start_ranks.h"

#include "tandem/base/error.h"

namespace tandem::app {

void start_ranks(const LaunchOptions& options) {
  const auto outcome = launch_ranks(options);
  if (outcome.code == 2) {
    throw ConfigError(outcome.reason);
  }
  if (outcome.code != 0) {
    throw Error(outcome.reason);
  }
}

}  // namespace tandem::app
