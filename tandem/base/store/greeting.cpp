#include "tandem/base/store/greeting.h"

#include <unistd.h>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr size_t kNumTexts = 8;

// Returns a text such as "rank 1 on node7 (pid 12)".
std::string who(const Greeting& greeting) {
  const bool is_rank = greeting.role == Greeting::Role::rank;
  return (is_rank ? "rank " : "launcher of host ") + std::to_string(greeting.number) +
         " on " + greeting.host;
}

std::string differ(
    const Greeting& one, const std::string& has, const Greeting& other,
    const std::string& others, const std::string& advice) {
  return "[store] " + who(one) + " " + has + ", but " + who(other) + " " + others +
         "; " + advice;
}

}  // namespace

Greeting greeting_of(
    Greeting::Role role, int number, int world_size, const std::string& backend,
    const std::string& run) {
  Greeting greeting;
  greeting.role = role;
  greeting.number = number;
  greeting.world_size = world_size;
  greeting.backend = backend;
  greeting.run = run;
  greeting.build = build_id();
  greeting.host = host_name() + " (pid " + std::to_string(getpid()) + ")";
  greeting.identity = host_identity() + "/" + std::to_string(getpid());
  return greeting;
}

std::vector<std::string> to_texts(const Greeting& greeting) {
  return {
      greeting.role == Greeting::Role::rank ? "rank" : "launcher",
      std::to_string(greeting.number),
      std::to_string(greeting.world_size),
      greeting.backend,
      greeting.build,
      greeting.host,
      greeting.identity,
      greeting.run};
}

std::optional<Greeting> from_texts(const std::vector<std::string>& texts) {
  if (texts.size() != kNumTexts || (texts[0] != "rank" && texts[0] != "launcher")) {
    return std::nullopt;
  }
  const auto number = parse_number<int>(texts[1]);
  const auto world_size = parse_number<int>(texts[2]);
  if (!number || !world_size || *number < 0 || *number >= *world_size) {
    return std::nullopt;
  }
  Greeting greeting;
  greeting.role = texts[0] == "rank" ? Greeting::Role::rank : Greeting::Role::launcher;
  greeting.number = *number;
  greeting.world_size = *world_size;
  // The texts of a client are shortened and made printable, even if the client knows
  // the token, because they may be printed on a terminal.
  constexpr size_t kMost = 300;
  greeting.backend = printable(texts[3].substr(0, kMost));
  greeting.build = printable(texts[4].substr(0, kMost));
  greeting.host = printable(texts[5].substr(0, kMost));
  greeting.identity = texts[6].substr(0, kMost);
  greeting.run = printable(texts[7].substr(0, kMost));
  return greeting;
}

std::string RollCall::add(const Greeting& greeting) {
  std::string line = difference(greeting);
  if (!line.empty()) {
    return line;
  }
  auto& processes = of_role(greeting.role);
  if (!processes.first) {
    processes.first = greeting;
  }
  if (!first_with_backend_ && !greeting.backend.empty()) {
    first_with_backend_ = greeting;
  }
  if (!first_with_run_ && !greeting.run.empty()) {
    first_with_run_ = greeting;
  }
  processes.present.emplace(greeting.number, greeting);
  const auto num_ranks = static_cast<int>(ranks_.present.size());
  complete_ = complete_ || (ranks_.first && num_ranks == ranks_.first->world_size);
  return "";
}

void RollCall::leave(const Greeting& greeting) {
  auto& there = of_role(greeting.role).present;
  const auto found = there.find(greeting.number);
  if (!complete_ && found != there.end() &&
      found->second.identity == greeting.identity) {
    there.erase(found);
  }
}

std::string RollCall::missing_ranks() const {
  const auto& first = ranks_.first ? ranks_.first : launchers_.first;
  if (!first || complete_) {
    return "";
  }
  std::vector<int> missing;
  for (int rank = 0; rank < first->world_size; ++rank) {
    if (ranks_.present.count(rank) == 0) {
      missing.push_back(rank);
    }
  }
  return with_numbers("rank", missing) + " of " + std::to_string(first->world_size);
}

std::string RollCall::difference(const Greeting& greeting) {
  if (first_with_run_ && !greeting.run.empty() &&
      greeting.run != first_with_run_->run) {
    return differ(
        greeting, "belongs to run '" + greeting.run + "'", *first_with_run_,
        "belongs to run '" + first_with_run_->run + "'",
        "use a different MASTER_PORT for each run");
  }
  const auto& any = launchers_.first ? launchers_.first : ranks_.first;
  if (any && greeting.build != any->build) {
    return differ(
        greeting, "has build " + greeting.build, *any, "has " + any->build,
        "install the same tandem on every host");
  }
  const auto& [first, present] = of_role(greeting.role);
  if (first && greeting.world_size != first->world_size) {
    return differ(
        greeting, "expects " + std::to_string(greeting.world_size) + " ranks", *first,
        "expects " + std::to_string(first->world_size),
        "give every host the same --nnodes and --nproc, every rank the same "
        "WORLD_SIZE");
  }
  if (first_with_backend_ && !greeting.backend.empty() &&
      greeting.backend != first_with_backend_->backend) {
    return differ(
        greeting, "has backend " + greeting.backend, *first_with_backend_,
        "has " + first_with_backend_->backend, "give every host the same --backend");
  }
  const auto found = present.find(greeting.number);
  if (found != present.end() && found->second.identity != greeting.identity) {
    return "[store] " +
           std::string(greeting.role == Greeting::Role::rank ? "rank " : "host ") +
           std::to_string(greeting.number) + " has joined twice, from " +
           found->second.host + " and " + greeting.host +
           "; give each host a different --node-rank, or each process a different RANK";
  }
  return "";
}

}  // namespace tandem
