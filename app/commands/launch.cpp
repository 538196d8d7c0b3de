#include "app/launch_flags.h"
#include "app/start_ranks.h"

namespace tandem::app {

int run_launch(const Arguments& arguments) {
  const auto [options, variables] = parse_launch(arguments);
  variables.announce(options);
  start_ranks(options);
  return 0;
}

}  // namespace tandem::app
