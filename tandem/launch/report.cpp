#include "tandem/launch/report.h"

#include "tandem/base/error.h"

namespace tandem {

namespace {

std::string key_of(int rank) {
  return "failure/" + std::to_string(rank);
}

}  // namespace

// The value is the exit code, 'c' for a consequence or 'r' for a root cause,
// and the message.
void leave_report(StoreClient& store, int rank, const std::exception& error) {
  const bool consequence = dynamic_cast<const CommError*>(&error) != nullptr;
  try {
    store.set(
        key_of(rank), std::to_string(exit_code(error)) + (consequence ? "c" : "r") +
                          first_line(error));
  } catch (const Error&) {
    // The launcher is gone; there is nobody left to tell.
  }
}

std::optional<FailureReport> find_report(const StoreServer& store, int rank) {
  const auto value = store.get(key_of(rank));
  if (!value || value->size() < 2) {
    return std::nullopt;
  }
  return FailureReport{(*value)[0] - '0', (*value)[1] == 'c', value->substr(2)};
}

}  // namespace tandem
