#include "tandem/comm/join/join_mpi.h"

#include <cstdint>
#include <exception>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/comm/backends/mpi_group.h"
#include "tandem/comm/backends/mpi_session.h"

namespace tandem {

namespace {

// Socket of a store in a private directory, which exists until all ranks have joined.
struct MeetingPoint {
  MeetingPoint() : folder(make_private_directory()) {}
  ~MeetingPoint() {
    remove_all(folder);
  }
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  const std::string folder;
  std::unique_ptr<StoreServer> server =
      std::make_unique<StoreServer>("unix:" + folder + "/store");
};

void check_usable() {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun == 0 || ended != 0) {
    throw ConfigError(
        std::string("[comm] MPI is ") + (ended != 0 ? "finalized" : "not initialized") +
        ", expected an initialized MPI; call join_run() between MPI_Init_thread and "
        "MPI_Finalize");
  }
}

// Sets the rank's position among the ranks of its host.
void find_local_rank(MPI_Comm comm, RankEnv& env) {
  MPI_Comm local = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local));
  check_mpi(MPI_Comm_rank(local, &env.local_rank));
  check_mpi(MPI_Comm_size(local, &env.local_world_size));
  check_mpi(MPI_Comm_free(&local));
}

// Returns whether all ranks of `comm` are on one host.
bool share_a_host(MPI_Comm comm, const RankEnv& env) {
  // Hosts can have different numbers of ranks.
  int smallest = 0;
  check_mpi(MPI_Allreduce(&env.local_world_size, &smallest, 1, MPI_INT, MPI_MIN, comm));
  return smallest == env.world_size;
}

// Returns the text of rank 0 on all ranks.
std::string from_rank_0(MPI_Comm comm, std::string text) {
  auto length = static_cast<uint64_t>(text.size());
  check_mpi(MPI_Bcast(&length, 1, MPI_UINT64_T, 0, comm));
  text.resize(length);
  check_mpi(MPI_Bcast(text.data(), static_cast<int>(length), MPI_CHAR, 0, comm));
  return text;
}

JoinedRun join_by_shm(MPI_Comm comm, RankEnv env, CommOptions options) {
  std::unique_ptr<MeetingPoint> point;
  std::exception_ptr failure;
  if (env.rank == 0) {
    try {
      point = std::make_unique<MeetingPoint>();
    } catch (...) {
      // The other ranks wait for the address.
      failure = std::current_exception();
    }
  }
  env.store = from_rank_0(comm, point ? point->server->address() : "");
  if (failure) {
    std::rethrow_exception(failure);
  }
  if (env.store.empty()) {
    throw CommError("join_run", "rank 0 could not start the store", 0);
  }
  options.backend = BackendKind::shm;
  JoinedRun run = join_run(env, options);
  if (point) {
    run.server = std::move(point->server);
  }
  return run;
}

}  // namespace

JoinedRun join_run(MPI_Comm comm, const CommOptions& options) {
  check_usable();
  RankEnv env;
  check_mpi(MPI_Comm_rank(comm, &env.rank));
  check_mpi(MPI_Comm_size(comm, &env.world_size));
  find_local_rank(comm, env);
  env.source = "mpi";
  switch (options.backend) {
    case BackendKind::automatic:
    case BackendKind::shm:
    case BackendKind::mpi:
      break;
    default:
      throw ConfigError(
          std::string("[comm] backend is ") + name_of(options.backend) +
          ", expected auto, shm or mpi for an MPI communicator; change it");
  }
  const bool one_host = share_a_host(comm, env);
  if (options.backend == BackendKind::shm && !one_host) {
    throw ConfigError(
        "[comm] backend shm needs all ranks on one host, but the ranks of the MPI "
        "communicator are on several hosts; use auto or mpi");
  }
  if (one_host && options.backend != BackendKind::mpi) {
    return join_by_shm(comm, env, options);
  }
  set_thread_rank(env.rank, env.world_size);
  JoinedRun run;
  run.env = env;
  run.comm = make_mpi_communicator(comm, options.timeout());
  return run;
}

}  // namespace tandem
