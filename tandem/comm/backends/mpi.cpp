#include "tandem/comm/backends/mpi.h"

#include <ATen/ops/empty_like.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <thread>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/comm/backend.h"
#include "tandem/comm/backends/mpi_group.h"
#include "tandem/comm/backends/mpi_session.h"

namespace tandem {

namespace {

using std::chrono::milliseconds;

// Yields the core. After many polls, sleeps, because another rank probably needs the
// core.
void pause(int64_t round) {
  constexpr int64_t kYields = 2'000;
  if (round < kYields) {
    sched_yield();
  } else {
    const auto longer = std::min<int64_t>(500, 20 + (round - kYields) / 10);
    std::this_thread::sleep_for(std::chrono::microseconds(longer));
  }
}

// Resources of an operation until its end.
struct Flight {
  MPI_Request request = MPI_REQUEST_NULL;
  std::vector<at::Tensor> tensors;
  // Called after the operation succeeded.
  std::function<void(const MPI_Status&)> then;
};

class MpiWork : public Work {
 public:
  MpiWork(std::unique_ptr<Flight> flight, milliseconds group_timeout)
      : flight_(std::move(flight)), group_timeout_(group_timeout) {}

  ~MpiWork() override {
    if (!ended_) {
      // MPI may still write to the operation's tensors, so their memory is never freed.
      MpiSession::of_process().abandon();
      flight_.release();
    }
  }
  MpiWork(const MpiWork&) = delete;
  MpiWork& operator=(const MpiWork&) = delete;

  bool test() override {
    if (ended_) {
      return true;
    }
    int ended = 0;
    MPI_Status status{};
    const int code = MPI_Test(&flight_->request, &ended, &status);
    if (code != MPI_SUCCESS || ended != 0) {
      ended_ = true;
      end(code, status);
    }
    return ended_;
  }

  void wait(milliseconds timeout) override {
    const auto limit = timeout.count() > 0 ? timeout : group_timeout_;
    const Deadline deadline(limit);
    for (int64_t round = 0; !test(); ++round) {
      if (deadline.passed()) {
        throw std::runtime_error(
            "no answer within " + std::to_string(limit.count()) + " ms");
      }
      pause(round);
    }
    if (!error_.empty()) {
      throw std::runtime_error(error_);
    }
  }

 private:
  void end(int code, const MPI_Status& status) {
    try {
      check_mpi(code);
      if (flight_->then) {
        flight_->then(status);
      }
    } catch (const std::exception& error) {
      MpiSession::of_process().abandon();
      error_ = error.what();
    }
    flight_->tensors.clear();
    flight_->then = nullptr;
  }

  std::unique_ptr<Flight> flight_;
  milliseconds group_timeout_;
  bool ended_ = false;
  std::string error_;
};

MPI_Op to_mpi(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    default:
      return MPI_SUM;
  }
}

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

// Returns a type that MPI can reduce.
MPI_Datatype number_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return MPI_FLOAT;
    case at::kDouble:
      return MPI_DOUBLE;
    case at::kLong:
      return MPI_INT64_T;
    case at::kInt:
      return MPI_INT32_T;
    case at::kShort:
      return MPI_INT16_T;
    case at::kChar:
      return MPI_INT8_T;
    case at::kByte:
    case at::kBool:
      return MPI_UINT8_T;
    default:
      throw ConfigError(
          std::string("[comm] backend mpi cannot reduce ") +
          c10::toString(tensor.scalar_type()) + "; convert it to float");
  }
}

// Returns a type of the same size, for operations that only copy tensors.
MPI_Datatype bytes_type(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
    default:
      throw ConfigError(
          std::string("[comm] backend mpi cannot move ") +
          c10::toString(tensor.scalar_type()) + "; convert it to float");
  }
}

int count_of(const at::Tensor& tensor) {
  if (tensor.numel() > std::numeric_limits<int>::max()) {
    throw ConfigError(
        "[comm] backend mpi moves at most " +
        std::to_string(std::numeric_limits<int>::max()) + " elements at once, got " +
        std::to_string(tensor.numel()) + "; split the tensor");
  }
  return static_cast<int>(tensor.numel());
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, int rank, int size, milliseconds timeout)
      : Communicator(rank, size, "mpi"), comm_(comm), timeout_(timeout) {}

  ~MpiCommunicator() override {
    if (MpiSession::has_ended()) {
      return;
    }
    MpiSession& session = MpiSession::of_process();
    if (std::uncaught_exceptions() > 0) {
      session.abandon();
    }
    if (!session.abandoned()) {
      MPI_Comm_free(&comm_);
    }
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    const bool half = is_half(tensor);
    const auto wide = half ? tensor.to(at::kFloat) : tensor;
    auto flight = flight_with({tensor, wide});
    if (half) {
      flight->then = [tensor, wide](const MPI_Status&) { tensor.copy_(wide); };
    }
    check_mpi(MPI_Iallreduce(
        MPI_IN_PLACE, wide.data_ptr(), count_of(wide), number_type(wide), to_mpi(op),
        comm_, &flight->request));
    return in_flight(std::move(flight));
  }

  WorkPtr do_broadcast(at::Tensor tensor, int root) override {
    auto flight = flight_with({tensor});
    check_mpi(MPI_Ibcast(
        tensor.data_ptr(), count_of(tensor), bytes_type(tensor), root, comm_,
        &flight->request));
    return in_flight(std::move(flight));
  }

  WorkPtr do_reduce_scatter(at::Tensor output, at::Tensor input) override {
    const auto from = is_half(input) ? input.to(at::kFloat) : input;
    // MPI does not allow an output that is part of the input.
    const bool direct = !is_half(input) && !is_own_slice(output, input);
    const auto to = direct ? output : at::empty_like(output, from.options());
    auto flight = flight_with({output, input, from, to});
    if (!direct) {
      flight->then = [output, to](const MPI_Status&) { output.copy_(to); };
    }
    check_mpi(MPI_Ireduce_scatter_block(
        from.data_ptr(), to.data_ptr(), count_of(to), number_type(to), MPI_SUM, comm_,
        &flight->request));
    return in_flight(std::move(flight));
  }

  WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override {
    auto flight = flight_with({output, input});
    check_mpi(MPI_Iallgather(
        is_own_slice(input, output) ? MPI_IN_PLACE : input.data_ptr(), count_of(input),
        bytes_type(input), output.data_ptr(), count_of(input), bytes_type(output),
        comm_, &flight->request));
    return in_flight(std::move(flight));
  }

  WorkPtr do_scatter(at::Tensor output, at::Tensor input, int root) override {
    auto flight = flight_with({output, input});
    const bool in_place = rank() == root && is_own_slice(output, input);
    check_mpi(MPI_Iscatter(
        rank() == root ? input.data_ptr() : nullptr, count_of(output),
        bytes_type(output), in_place ? MPI_IN_PLACE : output.data_ptr(),
        count_of(output), bytes_type(output), root, comm_, &flight->request));
    return in_flight(std::move(flight));
  }

  WorkPtr do_gather(at::Tensor output, at::Tensor input, int root) override {
    auto flight = flight_with({output, input});
    const bool in_place = rank() == root && is_own_slice(input, output);
    check_mpi(MPI_Igather(
        in_place ? MPI_IN_PLACE : input.data_ptr(), count_of(input), bytes_type(input),
        rank() == root ? output.data_ptr() : nullptr, count_of(input),
        bytes_type(input), root, comm_, &flight->request));
    return in_flight(std::move(flight));
  }

  WorkPtr do_send(at::Tensor tensor, int peer, int tag) override {
    auto flight = flight_with({tensor});
    check_mpi(MPI_Isend(
        tensor.data_ptr(), count_of(tensor), bytes_type(tensor), peer, tag, comm_,
        &flight->request));
    return in_flight(std::move(flight));
  }

  WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override {
    auto flight = flight_with({tensor});
    const int count = count_of(tensor);
    const auto type = bytes_type(tensor);
    flight->then = [count, type](const MPI_Status& status) {
      int got = 0;
      MPI_Get_count(&status, type, &got);
      if (got != count) {
        throw std::runtime_error(
            "expected " + std::to_string(count) + " elements, got " +
            std::to_string(got));
      }
    };
    check_mpi(
        MPI_Irecv(tensor.data_ptr(), count, type, peer, tag, comm_, &flight->request));
    return in_flight(std::move(flight));
  }

  std::unique_ptr<Communicator> do_split(int color) override;

 private:
  static std::unique_ptr<Flight> flight_with(std::vector<at::Tensor> tensors) {
    auto flight = std::make_unique<Flight>();
    flight->tensors = std::move(tensors);
    return flight;
  }

  [[nodiscard]] WorkPtr in_flight(std::unique_ptr<Flight> flight) const {
    return std::make_shared<MpiWork>(std::move(flight), timeout_);
  }

  MPI_Comm comm_;
  milliseconds timeout_;
};

// Takes ownership of `comm`.
std::unique_ptr<Communicator> communicator_of(MPI_Comm comm, milliseconds timeout) {
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  check_mpi(MPI_Comm_rank(comm, &rank));
  check_mpi(MPI_Comm_size(comm, &size));
  if (size == 1) {
    check_mpi(MPI_Comm_free(&comm));
    return make_single_communicator();
  }
  return std::make_unique<MpiCommunicator>(comm, rank, size, timeout);
}

std::unique_ptr<Communicator> MpiCommunicator::do_split(int color) {
  // MPI does not accept negative colors. The color passed to MPI is therefore the
  // number of the first rank with an equal color.
  const int first = find_part(color).ranks.front();
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, first, rank(), &part));
  return communicator_of(part, timeout_);
}

}  // namespace

bool has_mpi() {
  return true;
}

std::unique_ptr<Communicator> make_mpi_communicator(milliseconds timeout) {
  return make_mpi_communicator(MPI_COMM_WORLD, timeout);
}

std::unique_ptr<Communicator> make_mpi_communicator(
    MPI_Comm comm, milliseconds timeout) {
  try {
    MpiSession::of_process();
    MPI_Comm own = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(comm, &own));
    return communicator_of(own, timeout);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError("forming the MPI group", first_line(error));
  }
}

std::unique_ptr<Communicator> make_world(
    KindTag<BackendKind::mpi>, const BackendParts& parts) {
  const RankEnv& env = parts.env;
  // srun can also start MPI's ranks, through PMIx.
  if (!get_env("OMPI_COMM_WORLD_SIZE") && !get_env("PMIX_RANK")) {
    throw ConfigError(
        "[comm] backend mpi needs ranks that mpirun started, but mpirun did not start "
        "this process; put 'mpirun -np " +
        std::to_string(std::max(2, env.world_size)) +
        "' before the command, or use --backend gloo");
  }
  auto comm = make_mpi_communicator(parts.options.timeout());
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

}  // namespace tandem
