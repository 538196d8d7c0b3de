#include "tandem/train/drift_check.h"

#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/parallel/reduce/replicas.h"

namespace tandem {

void check_drift(
    const Assembly& parts, Communicator& comm, DriftCheck check, int64_t step) {
  if (check == DriftCheck::off) {
    return;
  }
  Communicator* replicas = parts.strategy->replicas();
  const Drift drift = find_drift(replicas != nullptr ? *replicas : comm, *parts.arenas);
  if (drift.ranks.empty()) {
    return;
  }
  const bool sharded = parts.strategy->consistency() == Consistency::sharded;
  const char* who = sharded ? "replica" : "rank";
  const std::string found = fmt::format(
      "[train] parameter '{}' differs between {} {} and {} 0 after step {}",
      drift.parameter, who, drift.ranks.front(), who, step);
  if (check == DriftCheck::stop) {
    throw Error(
        found +
        "; look for code that changes parameters on some ranks only, or copy rank 0's "
        "with --drift-check resync");
  }
  log_warning(found + "; all ranks continue with rank 0's parameters");
  parts.strategy->resync();
}

}  // namespace tandem
