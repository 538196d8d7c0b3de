#include "tandem/comm/join/join.h"

#include <c10/util/Logging.h>

#include <algorithm>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/base/store/socket.h"
#include "tandem/comm/backend.h"

namespace tandem {

namespace {

constexpr int kPortsBehindAgent = 8;
// Timeout of an answer of the store, long enough even for a busy host.
constexpr Milliseconds kPatience{30'000};

// Returns the token of the store. It differs between users, between sets of hosts, and
// between restarts under torchrun. Under torchrun, it also differs between runs. There,
// ranks search several ports for their store, and a rank that greets the store of
// another run would end that run.
std::string run_token(const TokenFile& file, const RankEnv& env) {
  return file.token() + "\n" + (env.agent_store ? env.run : "") + "/" +
         get_env("TORCHELASTIC_RESTART_COUNT").value_or("0");
}

std::vector<std::string> meeting_points(const RankEnv& env) {
  const int first = env.agent_store ? 1 : 0;
  const int last = env.agent_store ? kPortsBehindAgent : 0;
  std::vector<std::string> points;
  for (int offset = first; offset <= last; ++offset) {
    points.push_back(
        "tcp:" + env.master_addr + ":" + std::to_string(env.master_port + offset));
  }
  return points;
}

std::unique_ptr<StoreServer> serve(
    const RankEnv& env, const std::string& token, const CommOptions& options) {
  const auto timeout = options.timeout();
  const auto on = options.listen_all ? ListenOn::all : ListenOn::host;
  const auto points = meeting_points(env);
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    try {
      return std::make_unique<StoreServer>(points[i], token, timeout, on);
    } catch (const ConfigError& error) {
      log_debug(error.what());
    }
  }
  return std::make_unique<StoreServer>(points.back(), token, timeout, on);
}

// Tries several ports, because another run may use some of them.
std::shared_ptr<StoreClient> find_store(
    const RankEnv& env, const std::string& token, Milliseconds timeout) {
  const auto points = meeting_points(env);
  if (points.size() == 1) {
    return std::make_shared<StoreClient>(points[0], timeout, token);
  }
  const Deadline deadline(timeout);
  for (;;) {
    for (const auto& point : points) {
      try {
        return std::make_shared<StoreClient>(point, Milliseconds(200), token);
      } catch (const Error&) {
        if (deadline.passed()) {
          throw;
        }
      }
    }
  }
}

}  // namespace

JoinedRun::~JoinedRun() {
  leave();
}

JoinedRun& JoinedRun::operator=(JoinedRun&& other) noexcept {
  if (this != &other) {
    leave();
    env = std::move(other.env);
    token.reset();
    if (other.token) {
      token.emplace(*std::move(other.token));
    }
    server = std::move(other.server);
    store = std::move(other.store);
    comm = std::move(other.comm);
  }
  return *this;
}

void JoinedRun::leave() {
  const bool formed = comm != nullptr;
  comm.reset();
  if (store) {
    // A store that does not answer must not delay the end of a failed run.
    store->answer_within(Milliseconds(1'000));
  }
  if (server && !formed) {
    store.reset();
    server->linger_if_refused();
  }
  if (store && server && formed) {
    try {
      std::vector<std::string> all;
      for (int rank = 1; rank < env.world_size; ++rank) {
        all.push_back("left/" + std::to_string(rank));
      }
      if (!all.empty()) {
        store->wait(all, Milliseconds(5'000));
      }
    } catch (const Error&) {
      // The other ranks failed and do not need the store any more.
    }
  } else if (store) {
    try {
      store->set("left/" + std::to_string(env.rank), "1");
    } catch (const Error&) {
      // The store has ended, so no rank waits for this rank.
    }
  }
}

TokenOptions token_options(const CommOptions& options) {
  return {options.token_file, options.insecure};
}

JoinedRun join_run(const CommOptions& options) {
  return join_run(read_rank_env().value_or(RankEnv{}), options);
}

JoinedRun join_run(const RankEnv& env, const CommOptions& options) {
  reserve_standard_streams();
  // A LibTorch without glog reads TORCH_CPP_LOG_LEVEL only in initLogging(). The level
  // silences messages of Gloo about each peer that leaves first.
  c10::initLogging();
  // Deadline of forming the group, which includes finding the store.
  const Deadline forming(options.timeout());
  const auto make =
      with_kind(options.backend, [](auto kind) { return &make_world<kind()>; });
  JoinedRun run;
  run.env = env;
  set_thread_rank(env.rank, env.world_size);
  // These backends need no store. The factory of `thread` only throws.
  if (row_of(options.backend).has_launcher || options.backend == BackendKind::thread) {
    run.comm = make({env, options, forming, nullptr});
    return run;
  }
  if (env.world_size == 1 && env.store.empty()) {
    run.comm = make_single_communicator();
    return run;
  }
  if (!env.store.empty()) {
    run.store = std::make_shared<StoreClient>(
        env.store, options.timeout(), launchers_token(env.store));
  } else {
    run.token.emplace(token_options(options), is_one_host(env));
    const auto token = run_token(*run.token, env);
    if (env.rank == 0) {
      run.server = serve(env, token, options);
      run.server->name_missing_ranks();
      if (run.token->path().empty()) {
        warn_of_no_token(run.server->address());
      }
    }
    run.store = find_store(env, token, options.timeout());
  }
  run.store->answer_within(std::min(kPatience, options.timeout()));
  run.store->greet(greeting_of(
      Greeting::Role::rank, env.rank, env.world_size, name_of(options.backend),
      env.run));
  run.comm = env.world_size == 1 ? make_single_communicator()
                                 : make({env, options, forming, run.store});
  return run;
}

}  // namespace tandem
