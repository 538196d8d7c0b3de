#include "tandem/launch/rendezvous.h"

#include <fmt/core.h>

#include <csignal>
#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/signals.h"
#include "tandem/base/store/socket.h"
#include "tandem/base/wait_notice.h"
#include "tandem/launch/host_watch.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

// Key with the number of the attempt and of the restarts.
constexpr const char* kAttempt = "launch/attempt";
constexpr Milliseconds kBetweenTries{200};
// Time in which host 0 notices that a launcher was replaced by another one.
constexpr Milliseconds kReplacement{5'000};
// Timeout of a launcher without --timeout-seconds.
constexpr Milliseconds kUsualTimeout{300'000};

std::string master_address(const LaunchOptions& options) {
  return "tcp:" + options.master_addr + ":" + std::to_string(options.master_port);
}

ListenOn listen_on(const LaunchOptions& options) {
  return options.listen_all ? ListenOn::all : ListenOn::host;
}

Attempt attempt_in(StoreClient& client) {
  std::istringstream text(client.get(kAttempt, kBetweenTries));
  Attempt attempt;
  text >> attempt.number >> attempt.restarts;
  return attempt;
}

// Joins the store of host 0 for an attempt. Returns null if its server is of an earlier
// attempt, or of an attempt that is over. Throws CommError if host 0 does not answer.
std::unique_ptr<StoreClient> try_to_join(
    const LaunchOptions& options, const std::string& token, Attempt& attempt) {
  auto client =
      std::make_unique<StoreClient>(master_address(options), kBetweenTries, token);
  const Attempt begun = attempt_in(*client);
  if (begun.number < attempt.number || client->has({kRunOver})) {
    return nullptr;
  }
  client->greet(launcher_greeting(options));
  attempt = begun;
  return client;
}

Meeting join_attempt(
    const LaunchOptions& options, const std::string& token, Attempt attempt) {
  const auto start = Clock::now();
  const auto timeout =
      options.timeout() == Milliseconds(0) ? kUsualTimeout : options.timeout();
  WaitNotice notice;
  for (;;) {
    const auto waited = Clock::now() - start;
    try {
      if (auto client = try_to_join(options, token, attempt)) {
        return {std::move(client), attempt};
      }
    } catch (const CommError&) {
      if (waited > timeout) {
        throw;
      }
    } catch (const ConfigError&) {
      if (waited > kReplacement) {
        throw;
      }
    }
    const std::string line =
        "[launch] waiting for host 0 at " + master_address(options);
    if (notice.is_due(line)) {
      log_info(line);
    }
    if (const int number = pending_stop_signal(); number != 0) {
      throw Error(fmt::format("stopped by SIG{}", sigabbrev_np(number)));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace

Greeting launcher_greeting(const LaunchOptions& options) {
  return greeting_of(
      Greeting::Role::launcher, options.node_rank,
      options.nnodes * options.nproc_per_node, options.backend, options.run);
}

Meeting meet_first_node(
    const LaunchOptions& options, const std::string& token, const Attempt& next) {
  const Milliseconds timeout = options.timeout();
  if (options.nnodes > 1 && options.node_rank > 0 && options.max_restarts > 0) {
    return join_attempt(options, token, next);
  }
  if (options.nnodes == 1 || timeout.count() == 0) {
    return {nullptr, next};
  }
  if (options.node_rank > 0) {
    auto client =
        std::make_unique<StoreClient>(master_address(options), timeout, token);
    client->greet(launcher_greeting(options));
    return {std::move(client), next};
  }
  listen_at(master_address(options), timeout, listen_on(options));
  return {nullptr, next};
}

Rendezvous::Rendezvous(
    const LaunchOptions& options, const std::string& token, Meeting meeting)
    : client(std::move(meeting.client)), attempt(meeting.attempt) {
  if (options.nnodes == 1) {
    directory = std::make_unique<MeetingDirectory>();
    server = std::make_unique<StoreServer>(
        directory->store_address(), "", Milliseconds(0), ListenOn::host,
        launcher_greeting(options));
    address = server->address();
    return;
  }
  address = master_address(options);
  if (options.node_rank == 0) {
    server = std::make_unique<StoreServer>(
        address, token, Milliseconds(0), listen_on(options),
        launcher_greeting(options));
    server->set(kAttempt, fmt::format("{} {}", attempt.number, attempt.restarts));
    if (options.token.insecure && attempt.number == 0) {
      warn_of_no_token(address);
    }
  }
}

}  // namespace tandem
