#include "tandem/launch/report.h"

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/store/token.h"

namespace tandem {

namespace {

std::string key_of(int rank) {
  return "failure/" + std::to_string(rank);
}

std::optional<FailureReport> parse_report(const std::optional<std::string>& value) {
  if (!value || value->size() < 2) {
    return std::nullopt;
  }
  // Whoever is in the run can write this: never that nothing failed, nor to a terminal
  // what is no text.
  constexpr size_t kMostBytes = 4096;
  return FailureReport{
      (*value)[0] == '2' ? 2 : 1, (*value)[1] == 'c',
      printable(value->substr(2, kMostBytes))};
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

bool report_to_launcher(const std::exception& error) {
  const auto env = read_rank_env();
  if (!env || env->store.empty()) {
    return false;
  }
  try {
    StoreClient store(env->store, Milliseconds(1'000), launchers_token(env->store));
    leave_report(store, env->rank, error);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::optional<FailureReport> find_report(const StoreServer& store, int rank) {
  return parse_report(store.get(key_of(rank)));
}

std::optional<FailureReport> find_report(StoreClient& store, int rank) {
  try {
    const auto key = key_of(rank);
    return store.has({key}) ? parse_report(store.get(key, {})) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace tandem
