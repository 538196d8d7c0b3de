#pragma once

#include <optional>
#include <string>

#include "tandem/base/process.h"
#include "tandem/base/store/store.h"

namespace tandem {

/// Why a rank stopped, as it says itself over the rendezvous store.
struct FailureReport {
  // Exit code that the error asks for.
  int code = 1;
  // A peer or the network failed first: look at the other ranks' reports.
  bool consequence = false;
  std::string message;
  // Of the reports of all ranks, from 1.
  int64_t order = 0;
};

/// A rank leaves its report before it exits. Errors of the store are ignored:
/// the exit code still tells that the rank failed.
void leave_report(StoreClient& store, int rank, const std::exception& error);

/// The same for this process, as its environment says. False when it has to say itself
/// why it failed: it is not a rank of our launcher, which alone reads reports, or cannot
/// reach that and has an error of its own.
bool report_to_launcher(const std::exception& error);

/// The report of a rank, nullopt when it left none.
std::optional<FailureReport> find_report(const StoreServer& store, int rank);
/// The same from another host; nullopt also when the store is gone.
std::optional<FailureReport> find_report(StoreClient& store, int rank);

}  // namespace tandem
