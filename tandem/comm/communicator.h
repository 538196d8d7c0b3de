#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

class RpcBackend;

enum class ReduceOp { sum, min, max };

/// One operation in flight. Keep the tensors alive and untouched until wait()
/// has returned. It must not outlive its communicator.
class Work {
 public:
  virtual ~Work() = default;

  /// True once the operation has ended, well or not. Never blocks.
  virtual bool test() = 0;

  /// Blocks until the operation has ended. Zero takes the group's timeout.
  ///
  /// On a device, and without a timeout, nobody is blocked: what the caller puts on the
  /// device's current stream from then on comes after the operation.
  ///
  /// Throws CommError when it failed or the time passed first; the group is then
  /// unusable.
  virtual void wait(std::chrono::milliseconds timeout = {}) = 0;

  /// wait() that blocks on a device too.
  virtual void wait_on_host() {
    wait();
  }
};
using WorkPtr = std::shared_ptr<Work>;

/// What a communicator has done so far.
struct CommStats {
  int64_t operations = 0;
  // Bytes of the tensors that operations were given.
  int64_t bytes = 0;
  // Time that the caller was blocked, usually in wait(): communication that nothing
  // hid.
  double waited_seconds = 0;

  CommStats& operator+=(const CommStats& other) {
    operations += other.operations;
    bytes += other.bytes;
    waited_seconds += other.waited_seconds;
    return *this;
  }
  CommStats operator-(const CommStats& other) const {
    return {
        operations - other.operations, bytes - other.bytes,
        waited_seconds - other.waited_seconds};
  }
};

/// A group of ranks that compute together.
///
/// All ranks make the same calls in the same order. Calls return at once, or soon; the
/// operation runs beside the caller until wait(). Tensors are contiguous, of equal
/// dtype and size on all ranks. A group of one does nothing, so no caller asks for the
/// size. For the same tensors the result has the same bits each time; the backend says
/// whether it depends on how a buffer is cut.
///
/// One thread calls at a time. `label` names an operation in errors.
///
/// Throws CommError on failure, ConfigError for a tensor that is not contiguous or an
/// impossible root, peer or size.
class Communicator {
 public:
  Communicator(int rank, int size, std::string backend)
      : rank_(rank), size_(size), backend_(std::move(backend)) {}
  virtual ~Communicator() = default;

  int rank() const {
    return rank_;
  }
  int size() const {
    return size_;
  }
  const std::string& backend() const {
    return backend_;
  }
  const CommStats& stats() const {
    return stats_;
  }

  /// Every rank's `tensor` becomes the reduction over all ranks.
  [[nodiscard]] WorkPtr all_reduce(
      at::Tensor tensor, ReduceOp op = ReduceOp::sum, const std::string& label = "");

  /// Every rank's `tensor` becomes the root's.
  [[nodiscard]] WorkPtr broadcast(
      at::Tensor tensor, int root, const std::string& label = "");

  /// `output` becomes this rank's slice of the sum of all `input`s:
  /// input.numel() == size() * output.numel().
  [[nodiscard]] WorkPtr reduce_scatter(
      at::Tensor output, at::Tensor input, const std::string& label = "");

  /// `output` becomes all ranks' `input`s in rank order:
  /// output.numel() == size() * input.numel(). `input` may be this rank's own
  /// slice of `output`.
  [[nodiscard]] WorkPtr all_gather(
      at::Tensor output, at::Tensor input, const std::string& label = "");

  /// `output` becomes this rank's slice of the root's `input`, which only the root
  /// gives (others pass an undefined tensor); gather() is the inverse. The root's own
  /// part may be its slice of the whole.
  [[nodiscard]] WorkPtr scatter(
      at::Tensor output, at::Tensor input, int root, const std::string& label = "");
  [[nodiscard]] WorkPtr gather(
      at::Tensor output, at::Tensor input, int root, const std::string& label = "");

  /// Point to point. Messages between two ranks with one tag arrive in order.
  [[nodiscard]] WorkPtr send(
      at::Tensor tensor, int peer, int tag, const std::string& label = "");
  [[nodiscard]] WorkPtr recv(
      at::Tensor tensor, int peer, int tag, const std::string& label = "");

  /// Returns when all ranks have called it.
  void barrier(const std::string& label = "");

  /// Where the tensors lie that operations take, and those that the group makes itself.
  virtual at::Device device() const {
    return at::kCPU;
  }

  /// Whether they may lie there.
  virtual bool takes(at::Device where) const {
    return size_ == 1 || where == device();
  }

  /// The group of the same ranks for tensors in main memory: this one, unless it is
  /// for devices (backends/device.h).
  virtual Communicator& host_group() {
    return *this;
  }

  /// A flat tensor of zeros in main memory, best for what this group reduces: a backend
  /// may reduce parts of it where they lie. Not collective; any thread. It may outlive
  /// the communicator.
  [[nodiscard]] virtual at::Tensor make_buffer(int64_t numel, at::ScalarType dtype);

  /// This group's part in calls between ranks (rpc/rpc.h); null: they cannot call each
  /// other.
  virtual RpcBackend* rpc_backend() {
    return nullptr;
  }

  /// Whether make_buffer() gives memory that all ranks reach.
  virtual bool shares_memory() const {
    return false;
  }

  /// Ranks with the same `color` form a new group, in order of rank. Collective.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// All ranks' tensors, stacked in rank order: size() x the shape of `mine`, where
  /// `mine` lies, which may be main memory. Collective; waits.
  [[nodiscard]] at::Tensor stack(const at::Tensor& mine, const std::string& label = "");

  /// The SHA-256 of each rank's text, as size() rows of 64 hex digits. Collective;
  /// waits.
  [[nodiscard]] at::Tensor stack_digests(
      const std::string& text, const std::string& label = "");

  /// The root's text on every rank; others may give anything. Collective; waits.
  [[nodiscard]] std::string broadcast_text(
      const std::string& text, int root, const std::string& label = "");

  /// Compares a text on all ranks; throws ConfigError "`what` differ: rank 0 and
  /// rank 2" on every rank unless all are equal. Collective.
  void check_equal(const std::string& what, const std::string& text);

 protected:
  // What a backend provides. Tensors are checked; size() > 1.
  [[nodiscard]] virtual WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  [[nodiscard]] virtual WorkPtr do_broadcast(at::Tensor tensor, int root) = 0;
  [[nodiscard]] virtual WorkPtr do_reduce_scatter(
      at::Tensor output, at::Tensor input) = 0;
  [[nodiscard]] virtual WorkPtr do_all_gather(at::Tensor output, at::Tensor input) = 0;
  [[nodiscard]] virtual WorkPtr do_scatter(
      at::Tensor output, at::Tensor input, int root) = 0;
  [[nodiscard]] virtual WorkPtr do_gather(
      at::Tensor output, at::Tensor input, int root) = 0;
  [[nodiscard]] virtual WorkPtr do_send(at::Tensor tensor, int peer, int tag) = 0;
  [[nodiscard]] virtual WorkPtr do_recv(at::Tensor tensor, int peer, int tag) = 0;

  // This rank's place among those with the same color. Collective.
  struct SplitRank {
    int rank = 0;
    int size = 1;
  };
  SplitRank rank_in_split(int color);

  // Counts what a backend waited outside of wait().
  void add_waited(std::chrono::duration<double> time) {
    stats_.waited_seconds += time.count();
  }

  // The peer that is known to have failed, -1 when none is.
  virtual int failed_peer() const {
    return -1;
  }

 private:
  friend class CheckedWork;

  CommError named_error(
      const struct OperationName& name, const std::exception& error) const;

  template <typename Start>
  [[nodiscard]] WorkPtr launch(
      const char* operation, const std::string& label, const at::Tensor& payload,
      Start&& start);
  void check_root(const char* operation, int root) const;
  void check_peer(const char* operation, int peer) const;

  int rank_;
  int size_;
  std::string backend_;
  int64_t sequence_ = 0;
  CommStats stats_;
};

/// A group of one.
[[nodiscard]] std::unique_ptr<Communicator> make_single_communicator();

}  // namespace tandem
