#include "tandem/launch/report.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/store/token.h"
#include "tandem/base/text.h"

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
  const size_t space = value->find(' ');
  if (space == std::string::npos) {
    return std::nullopt;
  }
  const size_t letter = std::min(space, value->find_first_not_of("0123456789"));
  const size_t order = std::min(space, letter + 1);
  return FailureReport{
      known_exit_code(parse_number<int>(value->substr(0, letter)).value_or(1)),
      (*value)[letter] == 'c', printable(value->substr(space + 1, kMostBytes)),
      parse_number<int64_t>(value->substr(order, space - order)).value_or(0)};
}

}  // namespace

// The value is the exit code, 'c' for a consequence or 'r' for a root cause, the order,
// a space, and the message.
void leave_report(StoreClient& store, int rank, const std::exception& error) {
  const bool consequence = dynamic_cast<const CommError*>(&error) != nullptr;
  try {
    const int64_t order = store.add("failures", 1);
    store.set(
        key_of(rank), std::to_string(exit_code(error)) + (consequence ? "c" : "r") +
                          std::to_string(order) + " " + first_line(error));
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
    store.answer_within(Milliseconds(2'000));
    leave_report(store, env->rank, error);
    return true;
  } catch (const Error&) {
    // The launcher says itself what it has lost; what followed from that is no news.
    return dynamic_cast<const CommError*>(&error) != nullptr;
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
