#include "app/launch_flags.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

int run_launch(const Arguments& arguments) {
  launch_ranks(parse_launch(arguments));
  return 0;
}

}  // namespace tandem::app
