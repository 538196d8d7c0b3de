#include "tandem/comm/join/join.h"

#include <c10/util/Logging.h>

#include <algorithm>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/base/store/socket.h"
#include "tandem/comm/backends/gloo.h"
#include "tandem/comm/backends/hierarchical.h"
#include "tandem/comm/backends/mpi.h"
#include "tandem/comm/shm/shm.h"

namespace tandem {

namespace {

constexpr int kPortsBehindAgent = 8;
// Timeout of an answer of the store, long enough even for a busy host.
constexpr Milliseconds kPatience{30'000};

// Waits until the group has formed on all ranks. A rank that leaves earlier would break
// connections that other ranks are still making.
void wait_until_all_have_formed(
    StoreClient& store, const RankEnv& env, Milliseconds timeout) {
  std::vector<std::string> all;
  for (int rank = 0; rank < env.world_size; ++rank) {
    all.push_back("formed/" + std::to_string(rank));
  }
  store.set(all[static_cast<size_t>(env.rank)], "1");
  store.wait(all, timeout);
}

std::unique_ptr<Communicator> make_gloo(
    const std::shared_ptr<StoreClient>& store, const RankEnv& env,
    const std::string& address, const CommOptions& options, const Deadline& forming) {
  GlooOptions gloo;
  gloo.address = address;
  gloo.timeout = options.timeout();
  gloo.forming_timeout = forming.left();
  gloo.attempts = 3;
  auto world = make_gloo_communicator(store, "world", env.rank, env.world_size, gloo);
  wait_until_all_have_formed(*store, env, forming.left());
  return world;
}

ShmOptions shm_options(const CommOptions& options, const Deadline& forming) {
  ShmOptions shm;
  shm.timeout = options.timeout();
  shm.forming_timeout = forming.left();
  return shm;
}

bool is_shared(const RankEnv& env) {
  return env.local_world_size == env.world_size;
}

std::unique_ptr<Communicator> make_shm(
    const std::shared_ptr<StoreClient>& store, const RankEnv& env, const std::string&,
    const CommOptions& options, const Deadline& forming) {
  if (!is_shared(env)) {
    throw ConfigError(
        "[comm] backend shm needs all ranks on one host, but only " +
        std::to_string(env.local_world_size) + " of " + std::to_string(env.world_size) +
        " ranks are on this host; use --backend auto, or correct LOCAL_WORLD_SIZE");
  }
  return make_shm_communicator(
      store, "world", env.rank, env.world_size, shm_options(options, forming));
}

std::unique_ptr<Communicator> make_hierarchy(
    const std::shared_ptr<StoreClient>& store, const RankEnv& env,
    const std::string& address, const CommOptions& options, const Deadline& forming) {
  return make_hierarchical_communicator(
      make_gloo(store, env, address, options, forming), store, "world", host_identity(),
      shm_options(options, forming));
}

// Makes a group over shared memory if all ranks are on this host and can share memory.
// On several hosts, the ranks of each host share memory.
std::unique_ptr<Communicator> make_best(
    const std::shared_ptr<StoreClient>& store, const RankEnv& env,
    const std::string& address, const CommOptions& options, const Deadline& forming) {
  if (is_shared(env)) {
    std::string why_not;
    auto comm = try_shm_communicator(
        store, "world", env.rank, env.world_size, shm_options(options, forming),
        why_not);
    if (comm != nullptr) {
      return comm;
    }
    if (env.rank == 0) {
      log_info("[comm] the ranks use gloo, not shared memory: " + why_not);
    }
    return make_gloo(store, env, address, options, forming);
  }
  return make_hierarchy(store, env, address, options, forming);
}

std::unique_ptr<Communicator> make_mpi(
    const std::shared_ptr<StoreClient>&, const RankEnv& env, const std::string&,
    const CommOptions& options, const Deadline&) {
  // srun can also start MPI's ranks, through PMIx.
  const bool started = get_env("OMPI_COMM_WORLD_SIZE") || get_env("PMIX_RANK");
  if (has_mpi() && !started) {
    throw ConfigError(
        "[comm] backend mpi needs ranks that mpirun started, but mpirun did not start "
        "this process; put 'mpirun -np " +
        std::to_string(std::max(2, env.world_size)) +
        "' before the command, or use --backend gloo");
  }
  MpiOptions mpi;
  mpi.timeout = options.timeout();
  auto comm = make_mpi_communicator(mpi);
  if (comm->size() != env.world_size || comm->rank() != env.rank) {
    throw ConfigError(
        "[comm] this process is rank " + std::to_string(comm->rank()) + " of " +
        std::to_string(comm->size()) + " by MPI, but rank " + std::to_string(env.rank) +
        " of " + std::to_string(env.world_size) +
        " by the environment; start the ranks with Open MPI's mpirun, and unset RANK "
        "and WORLD_SIZE");
  }
  return comm;
}

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
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    for (const auto& point : points) {
      try {
        return std::make_shared<StoreClient>(point, Milliseconds(200), token);
      } catch (const Error&) {
        if (std::chrono::steady_clock::now() > deadline) {
          throw;
        }
      }
    }
  }
}

// Returns a loopback address if every rank is on this host, otherwise the address of
// the interface that routes to host 0. If LOCAL_WORLD_SIZE is not set, the result
// depends on the route to MASTER_ADDR: a loopback MASTER_ADDR has a loopback route.
std::string interface_address(const RankEnv& env) {
  return is_shared(env) ? "127.0.0.1" : local_address_towards(env.master_addr);
}

using MakeBackend = std::unique_ptr<Communicator> (*)(
    const std::shared_ptr<StoreClient>& store, const RankEnv& env,
    const std::string& address, const CommOptions& options, const Deadline& forming);

MakeBackend factory_of(BackendKind kind) {
  switch (kind) {
    case BackendKind::automatic:
    // Makes the group for tensors in main memory.
    case BackendKind::nccl:
      return &make_best;
    case BackendKind::shm:
      return &make_shm;
    case BackendKind::shm_gloo:
      return &make_hierarchy;
    case BackendKind::gloo:
      return &make_gloo;
    case BackendKind::mpi:
      return &make_mpi;
    case BackendKind::thread:
      break;
  }
  throw ConfigError(
      "[comm] backend thread needs ranks that are threads; use --backend auto, or "
      "--rank-type thread");
}

}  // namespace

JoinedRun::~JoinedRun() {
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
  // silences messages of Gloo and TensorPipe about each peer that leaves first.
  c10::initLogging();
  // Deadline of forming the group, which includes finding the store.
  const Deadline forming(options.timeout());
  // Selects the factory first, so that a wrong backend is an error before the ranks
  // connect.
  const auto make = factory_of(options.backend);
  JoinedRun run;
  run.env = env;
  set_thread_rank(env.rank, env.world_size);
  if (row_of(options.backend).has_launcher) {
    run.comm = make(nullptr, env, "", options, forming);
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
  run.comm = env.world_size == 1
                 ? make_single_communicator()
                 : make(run.store, env, interface_address(env), options, forming);
  return run;
}

}  // namespace tandem
