#include "app/launch_flags.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

int run_launch(const Arguments& arguments) {
  const auto [options, variables] = parse_launch(arguments);
  variables.announce(options);
  launch_ranks(options);
  return 0;
}

}  // namespace tandem::app
