#include "app/run_as_rank.h"

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/report.h"

namespace tandem::app {

namespace {

bool report_to_launcher(const std::exception& error) {
  const auto env = read_rank_env();
  if (!env || env->store.empty()) {
    return false;
  }
  try {
    StoreClient store(env->store, Milliseconds(1'000));
    leave_report(store, env->rank, error);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

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
