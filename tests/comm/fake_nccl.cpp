#include "tests/comm/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem {

FakeNccl::CommPtr FakeNccl::comm_of(NcclComm handle, const char* call) {
  const auto found = comms_.find(handle);
  if (found == comms_.end()) {
    streams_->wrong(std::string(call) + " of a communicator that is gone");
    return nullptr;
  }
  return found->second;
}

NcclResult FakeNccl::init(
    int owner, NcclComm* handle, int size, NcclUniqueId id, int rank,
    const NcclConfig& config) {
  if (config.size != sizeof(NcclConfig) || config.magic != 0xcafebeef ||
      config.blocking != 0) {
    streams_->wrong("ncclCommInitRankConfig with a wrong config");
  }
  uint64_t number = 0;
  std::memcpy(&number, id.bytes, sizeof(number));
  auto& clique = cliques_[number];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->ranks.resize(static_cast<size_t>(size));
  }
  if (!clique->have_come.insert(rank).second) {
    streams_->wrong("two communicators are the same rank");
  }
  const auto comm = std::make_shared<Comm>();
  comm->clique = clique;
  comm->rank = rank;
  comm->owner = owner;
  comm->questions = streams_->up_to(3);
  clique->ranks.at(static_cast<size_t>(rank)) = comm;
  *handle = reinterpret_cast<NcclComm>(comm.get());
  comms_[*handle] = comm;
  return NcclResult::in_progress;
}

NcclResult FakeNccl::state_of(NcclComm handle) {
  const auto comm = comm_of(handle, "ncclCommGetAsyncError");
  if (!comm) {
    return NcclResult::invalid_argument;
  }
  if (comm->error != NcclResult::success) {
    return comm->error;
  }
  if (comm->finishing) {
    streams_->step();
    return comm->operations.empty() ? NcclResult::success : NcclResult::in_progress;
  }
  if (comm->questions > 0) {
    --comm->questions;
    return NcclResult::in_progress;
  }
  const auto& clique = *comm->clique;
  if (!comm->formed) {
    comm->formed = clique.have_come.size() == clique.ranks.size();
    return comm->formed ? NcclResult::success : NcclResult::in_progress;
  }
  if (!comm->in_progress.empty()) {
    // Ranks connect at their first call.
    if (clique.have_called.size() < clique.ranks.size()) {
      return NcclResult::in_progress;
    }
    put_on_stream(comm, std::exchange(comm->in_progress, {}), comm->stream);
  }
  return NcclResult::success;
}

NcclResult FakeNccl::start_group() {
  if (!groups_of_calls_.emplace(std::this_thread::get_id(), GroupOfCalls()).second) {
    streams_->wrong("a group of calls within another");
  }
  return NcclResult::success;
}

NcclResult FakeNccl::end_group() {
  const auto found = groups_of_calls_.find(std::this_thread::get_id());
  if (found == groups_of_calls_.end()) {
    streams_->wrong("ncclGroupEnd without ncclGroupStart");
    return NcclResult::invalid_usage;
  }
  const auto group = std::move(found->second);
  groups_of_calls_.erase(found);
  return group.comm ? submit(group.comm, group.parts, group.stream)
                    : NcclResult::success;
}

NcclResult FakeNccl::call(NcclComm handle, StreamHandle stream, const Part& part) {
  const auto comm = comm_of(handle, "an operation");
  if (!comm) {
    return NcclResult::invalid_argument;
  }
  const auto group = groups_of_calls_.find(std::this_thread::get_id());
  if (group == groups_of_calls_.end()) {
    return submit(comm, {part}, streams_->at(stream));
  }
  group->second.comm = comm;
  group->second.stream = streams_->at(stream);
  group->second.parts.push_back(part);
  return NcclResult::success;
}

NcclResult FakeNccl::submit(
    const CommPtr& comm, Parts parts, const std::shared_ptr<FakeStream>& stream) {
  if (comm->error != NcclResult::success) {
    return comm->error;
  }
  if (!comm->formed || !comm->in_progress.empty()) {
    streams_->wrong("an operation while another call is in progress");
    return NcclResult::invalid_usage;
  }
  if (comm->stream && comm->stream != stream) {
    streams_->wrong("a communicator on two streams");
  }
  const auto put = [all = shared_from_this(), comm,
                    parts](const std::shared_ptr<FakeStream>& twin) {
    const auto lock = all->streams_->lock();
    Parts fresh = parts;
    copy_to_itself(*comm, fresh, *twin);
    all->put_on_stream(comm, std::move(fresh), twin);
  };
  if (streams_->note(stream, put)) {
    comm->questions = streams_->up_to(3);
    return comm->questions > 0 ? NcclResult::in_progress : NcclResult::success;
  }
  comm->stream = stream;
  copy_to_itself(*comm, parts, *stream);
  auto& called = comm->clique->have_called;
  called.insert(comm->rank);
  if (called.size() < comm->clique->ranks.size() || streams_->up_to(1) == 0) {
    comm->in_progress = std::move(parts);
    comm->questions = streams_->up_to(3);
    return NcclResult::in_progress;
  }
  put_on_stream(comm, std::move(parts), stream);
  return NcclResult::success;
}

// A message of a rank to itself is an affair of one group of calls.
void FakeNccl::copy_to_itself(const Comm& comm, Parts& parts, FakeStream& stream) {
  for (auto& sent : parts) {
    for (auto& got : parts) {
      if (sent.kind == Part::Kind::send && got.kind == Part::Kind::recv &&
          sent.other == comm.rank && got.other == comm.rank) {
        sent.done = got.done = true;
        stream.tasks.push_back({nullptr, [sent, got] {
                                  std::memmove(got.output, sent.input, bytes_of(sent));
                                  return true;
                                }});
      }
    }
  }
}

void FakeNccl::put_on_stream(
    const CommPtr& comm, Parts parts, const std::shared_ptr<FakeStream>& stream) {
  const auto operation = std::make_shared<Operation>();
  operation->parts = std::move(parts);
  operation->stream = stream;
  comm->operations.push_back(operation);
  stream->tasks.push_back(
      {[comm, operation] { return can_run(*comm, operation->parts); },
       [this, comm, operation] { return run(*comm, operation->parts); },
       operation.get()});
}

NcclResult FakeNccl::finalize(NcclComm handle) {
  const auto comm = comm_of(handle, "ncclCommFinalize");
  if (!comm || !comm->in_progress.empty() || !comm->formed) {
    streams_->wrong("ncclCommFinalize while a call is in progress");
    return NcclResult::invalid_usage;
  }
  comm->finishing = true;
  return NcclResult::in_progress;
}

NcclResult FakeNccl::destroy(NcclComm handle) {
  const auto comm = comm_of(handle, "ncclCommDestroy");
  if (!comm || !comm->finishing || !comm->operations.empty()) {
    streams_->wrong("ncclCommDestroy before ncclCommFinalize has ended");
    return NcclResult::invalid_usage;
  }
  comms_.erase(handle);
  comm->clique->ranks[static_cast<size_t>(comm->rank)] = nullptr;
  return NcclResult::success;
}

NcclResult FakeNccl::abort(NcclComm handle) {
  const auto comm = comm_of(handle, "ncclCommAbort");
  if (!comm) {
    return NcclResult::invalid_argument;
  }
  ++num_aborted_;
  comm->gone = true;
  comms_.erase(handle);
  comm->clique->ranks[static_cast<size_t>(comm->rank)] = nullptr;
  for (const auto& rank : comm->clique->ranks) {
    if (tells_ && rank) {
      rank->error = NcclResult::remote_error;
    }
  }
  return NcclResult::success;
}

void FakeNccl::report(int rank, NcclResult error) {
  for (const auto& [handle, comm] : comms_) {
    if (comm->owner == rank) {
      comm->error = error;
    }
  }
}

void FakeNccl::drop_comms() {
  for (const auto& [number, clique] : cliques_) {
    clique->ranks.clear();
  }
}

namespace {

const char* text_of(NcclResult result) {
  switch (result) {
    case NcclResult::success:
      return "no error";
    case NcclResult::remote_error:
      return "remote process exited or there was a network error";
    case NcclResult::unhandled_cuda_error:
      return "unhandled cuda error";
    default:
      return "invalid usage";
  }
}

}  // namespace

NcclApi FakeNccl::table(int rank) {
  const auto all = shared_from_this();
  // A member as a function of the table.
  const auto locked = [all](auto member) {
    return [all, member](auto... arguments) {
      const auto lock = all->streams_->lock();
      return (all.get()->*member)(arguments...);
    };
  };
  const auto reduction = [all](Part::Kind kind) {
    return [all, kind](
               const void* input, void* output, size_t count, NcclDataType dtype,
               NcclRedOp op, NcclComm comm, StreamHandle stream) {
      const auto lock = all->streams_->lock();
      return all->call(comm, stream, {kind, input, output, count, dtype, op});
    };
  };
  const auto call = locked(&FakeNccl::call);
  NcclApi api;
  api.get_version = [](int* version) {
    *version = 22809;
    return NcclResult::success;
  };
  api.get_unique_id = [all](NcclUniqueId* id) {
    const auto lock = all->streams_->lock();
    const uint64_t number = ++all->num_ids_;
    std::memcpy(id->bytes, &number, sizeof(number));
    return NcclResult::success;
  };
  api.comm_init_rank_config = [all, rank](
                                  NcclComm* comm, int size, NcclUniqueId id, int place,
                                  NcclConfig* config) {
    const auto lock = all->streams_->lock();
    return all->init(rank, comm, size, id, place, *config);
  };
  api.comm_get_async_error = [all](NcclComm comm, NcclResult* state) {
    const auto lock = all->streams_->lock();
    *state = all->state_of(comm);
    return NcclResult::success;
  };
  api.comm_finalize = locked(&FakeNccl::finalize);
  api.comm_destroy = locked(&FakeNccl::destroy);
  api.comm_abort = locked(&FakeNccl::abort);
  api.all_reduce = reduction(Part::Kind::all_reduce);
  api.reduce_scatter = reduction(Part::Kind::reduce_scatter);
  api.broadcast = [call](
                      const void* input, void* output, size_t count, NcclDataType dtype,
                      int root, NcclComm comm, StreamHandle stream) {
    return call(
        comm, stream,
        Part{Part::Kind::broadcast, input, output, count, dtype, NcclRedOp::sum, root});
  };
  api.all_gather = [call](
                       const void* input, void* output, size_t count,
                       NcclDataType dtype, NcclComm comm, StreamHandle stream) {
    return call(
        comm, stream, Part{Part::Kind::all_gather, input, output, count, dtype});
  };
  api.send = [call](
                 const void* input, size_t count, NcclDataType dtype, int peer,
                 NcclComm comm, StreamHandle stream) {
    return call(
        comm, stream,
        Part{Part::Kind::send, input, nullptr, count, dtype, NcclRedOp::sum, peer});
  };
  api.recv = [call](
                 void* output, size_t count, NcclDataType dtype, int peer,
                 NcclComm comm, StreamHandle stream) {
    return call(
        comm, stream,
        Part{Part::Kind::recv, nullptr, output, count, dtype, NcclRedOp::sum, peer});
  };
  api.group_start = locked(&FakeNccl::start_group);
  api.group_end = locked(&FakeNccl::end_group);
  api.get_error_string = &text_of;
  api.get_last_error = [](NcclComm) { return "in main memory\nsecond line"; };
  return api;
}

}  // namespace tandem
