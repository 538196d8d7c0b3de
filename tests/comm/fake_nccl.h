#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tandem/comm/nccl/nccl_api.h"
#include "tests/comm/fake_streams.h"

namespace tandem {

/// NCCL for ranks of this process, whose collectives move data in main memory once the
/// streams of all ranks have come to them. Calls are in progress for a while at random;
/// the first of a communicator until all its ranks have made theirs.
///
/// Whoever calls a member other than table() holds the streams' lock.
class FakeNccl : public std::enable_shared_from_this<FakeNccl> {
 public:
  explicit FakeNccl(std::shared_ptr<FakeStreams> streams)
      : streams_(std::move(streams)) {}

  NcclApi table(int rank);

  /// All communicators of the rank report this from now on.
  void report(int rank, NcclResult error);

  /// Peers of a rank that aborts are told.
  void tell_of_aborts() {
    tells_ = true;
  }

  int num_aborted() const {
    return num_aborted_;
  }
  int num_alive() const {
    return static_cast<int>(comms_.size());
  }

  /// Communicators hold each other.
  void drop_comms();

 private:
  // A call, or one of a group of calls.
  struct Part {
    enum class Kind { all_reduce, broadcast, reduce_scatter, all_gather, send, recv };
    Kind kind = Kind::all_reduce;
    const void* input = nullptr;
    void* output = nullptr;
    size_t count = 0;
    NcclDataType dtype = NcclDataType::uint8;
    NcclRedOp op = NcclRedOp::sum;
    // The root or the peer.
    int other = -1;
    bool done = false;

    bool message() const {
      return kind == Kind::send || kind == Kind::recv;
    }
  };
  using Parts = std::vector<Part>;
  struct Operation {
    Parts parts;
    std::shared_ptr<FakeStream> stream;
  };
  struct Comm;
  using CommPtr = std::shared_ptr<Comm>;
  struct Clique {
    // Null before a rank has come and once it has gone.
    std::vector<CommPtr> ranks;
    std::set<int> have_come;
    std::set<int> have_called;
  };
  struct Comm {
    std::shared_ptr<Clique> clique;
    int rank = 0;
    int owner = 0;
    bool formed = false;
    bool finishing = false;
    bool gone = false;
    NcclResult error = NcclResult::success;
    std::shared_ptr<FakeStream> stream;
    // A call in progress, for so many questions more.
    Parts in_progress;
    int questions = 0;
    // On streams.
    std::deque<std::shared_ptr<Operation>> operations;
  };
  struct GroupOfCalls {
    CommPtr comm;
    std::shared_ptr<FakeStream> stream;
    Parts parts;
  };

  NcclResult init(
      int owner, NcclComm* handle, int size, NcclUniqueId id, int rank,
      const NcclConfig& config);
  NcclResult state_of(NcclComm handle);
  NcclResult call(NcclComm handle, StreamHandle stream, const Part& part);
  NcclResult start_group();
  NcclResult end_group();
  NcclResult finalize(NcclComm handle);
  NcclResult destroy(NcclComm handle);
  NcclResult abort(NcclComm handle);
  CommPtr comm_of(NcclComm handle, const char* call);

  NcclResult submit(
      const CommPtr& comm, Parts parts, const std::shared_ptr<FakeStream>& stream);
  static void copy_to_itself(const Comm& comm, Parts& parts, FakeStream& stream);
  void put_on_stream(
      const CommPtr& comm, Parts parts, const std::shared_ptr<FakeStream>& stream);

  // Of what lies on streams.
  static size_t bytes_of(const Part& part);
  static bool alike(const Part& a, const Part& b);
  static at::Tensor reduced(const std::vector<Part*>& parts, size_t count);
  static void move_data(const std::vector<Part*>& parts);
  static Parts* head_of(const CommPtr& comm);
  static Part* answer_to(const Part& part, const Comm& comm);
  static bool can_run(const Comm& comm, const Parts& parts);
  bool run(Comm& comm, Parts& parts);
  void move_collective(const Comm& comm);
  void move_message(const Comm& comm, Parts& parts);

  std::shared_ptr<FakeStreams> streams_;
  std::map<NcclComm, CommPtr> comms_;
  std::map<uint64_t, std::shared_ptr<Clique>> cliques_;
  std::map<std::thread::id, GroupOfCalls> groups_of_calls_;
  uint64_t num_ids_ = 0;
  bool tells_ = false;
  int num_aborted_ = 0;
};

}  // namespace tandem
