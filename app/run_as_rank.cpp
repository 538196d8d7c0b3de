#include "app/run_as_rank.h"

#include "tandem/base/error.h"
#include "tandem/launch/failure_file.h"

namespace tandem::app {

int run_as_rank(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    if (report_to_launcher(error)) {
      return exit_code(error);
    }
    throw;
  }
}

}  // namespace tandem::app
