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
class Trace;

/// Default timeout of an operation.
constexpr std::chrono::milliseconds kDefaultCommTimeout{300'000};

/// Operation that combines corresponding elements of all ranks' tensors.
enum class ReduceOp { sum, min, max };

/// An operation in flight. Keep its tensors alive and unchanged until wait() has
/// returned. A Work must not outlive its communicator.
class Work {
 public:
  virtual ~Work() = default;

  /// Returns whether the operation has ended, with or without an error. Never blocks.
  virtual bool test() = 0;

  /// Blocks until the operation has ended. A timeout of zero means the group's timeout.
  ///
  /// If the tensors are on a device and `timeout` is zero, the call may return before
  /// the operation has ended. Work that is later added to the device's current stream
  /// then waits for the operation.
  ///
  /// Throws CommError if the operation failed or timed out; the group is then unusable.
  virtual void wait(std::chrono::milliseconds timeout = {}) = 0;

  /// Blocks until the operation has ended, even if its tensors are on a device.
  virtual void wait_on_host() {
    wait();
  }

  /// Calls `then` once when the operation ends, perhaps in another thread; immediately
  /// if the operation has already ended. `then` must not use the communicator. If the
  /// backend detects the end only in test() or wait(), `then` is never called. Call
  /// this function at most once, before wait().
  virtual void on_end(std::function<void()> then);
};
using WorkPtr = std::shared_ptr<Work>;

/// Statistics of a communicator.
struct CommStats {
  int64_t operations = 0;
  // Bytes of the operations' tensors.
  int64_t bytes = 0;
  // Time for which operations blocked the caller, usually in wait(): communication that
  // did not overlap with computation.
  double waited_seconds = 0;

  /// Adds the statistics of another group or period.
  CommStats& operator+=(const CommStats& other) {
    operations += other.operations;
    bytes += other.bytes;
    waited_seconds += other.waited_seconds;
    return *this;
  }
  /// Returns the difference between these statistics and `other`, an earlier copy of
  /// them.
  CommStats operator-(const CommStats& other) const {
    return {
        operations - other.operations, bytes - other.bytes,
        waited_seconds - other.waited_seconds};
  }
};

/// A group of ranks that compute together.
///
/// All ranks must make the same collective calls in the same order. A call starts an
/// operation and returns immediately or after a short wait. The operation can run in
/// parallel with the caller until wait(). Tensors are contiguous and have equal dtypes
/// and sizes on all ranks. In a group of one rank the collectives at most copy `input`
/// to `output`, so callers need no special case. Equal tensors give results with equal
/// bits in every run. The header of each backend describes the order of summation.
///
/// Only one thread may call at a time. `label` names an operation in errors.
///
/// Operations throw CommError if they fail. They throw ConfigError for a tensor that is
/// not contiguous or on another device (takes()), or an invalid root, peer or size.
class Communicator {
 public:
  /// Constructor for backends. `backend` is the backend's name.
  Communicator(int rank, int size, std::string backend)
      : rank_(rank), size_(size), backend_(std::move(backend)) {}
  virtual ~Communicator() = default;

  /// Returns this rank's number in the group, from 0.
  int rank() const {
    return rank_;
  }
  /// Returns the number of ranks in the group.
  int size() const {
    return size_;
  }
  /// Returns the name of the backend, such as "gloo".
  const std::string& backend() const {
    return backend_;
  }
  /// Returns the statistics of this rank's operations.
  const CommStats& stats() const {
    return stats_;
  }

  /// Records operations, and the time for which they block the caller, in `trace` while
  /// it has a TraceSection. Groups that are later split from this group do the same. If
  /// `trace` is null, nothing is recorded. `trace` must exist until each of these
  /// groups is destroyed or gets another trace.
  void set_trace(Trace* trace) {
    trace_ = trace;
  }

  /// Replaces every rank's `tensor` with the reduction over all ranks.
  [[nodiscard]] WorkPtr all_reduce(
      at::Tensor tensor, ReduceOp op = ReduceOp::sum, const std::string& label = "");

  /// Replaces every rank's `tensor` with the root's `tensor`.
  [[nodiscard]] WorkPtr broadcast(
      at::Tensor tensor, int root, const std::string& label = "");

  /// Sums the `input`s of all ranks and writes this rank's slice of the sum to
  /// `output`: input.numel() == size() * output.numel(). `output` may be this rank's
  /// slice of `input`; the other elements of `input` are then undefined afterwards.
  [[nodiscard]] WorkPtr reduce_scatter(
      at::Tensor output, at::Tensor input, const std::string& label = "");

  /// Writes all ranks' `input`s to `output`, in rank order: output.numel() == size() *
  /// input.numel(). `input` may be this rank's slice of `output`.
  [[nodiscard]] WorkPtr all_gather(
      at::Tensor output, at::Tensor input, const std::string& label = "");

  /// Writes this rank's slice of the root's `input` to `output`. Other ranks pass an
  /// undefined `input`. The root's `output` may be its slice of `input`.
  [[nodiscard]] WorkPtr scatter(
      at::Tensor output, at::Tensor input, int root, const std::string& label = "");
  /// Writes all ranks' `input`s, in rank order, to the root's `output`: the inverse of
  /// scatter(). Other ranks pass an undefined `output`.
  [[nodiscard]] WorkPtr gather(
      at::Tensor output, at::Tensor input, int root, const std::string& label = "");

  /// Sends a tensor to rank `peer`. Messages from one rank to another with equal tags
  /// arrive in the order of their sends.
  [[nodiscard]] WorkPtr send(
      at::Tensor tensor, int peer, int tag, const std::string& label = "");
  /// Receives a message with tag `tag` from rank `peer` into `tensor`.
  [[nodiscard]] WorkPtr recv(
      at::Tensor tensor, int peer, int tag, const std::string& label = "");

  /// Waits until all ranks have called barrier().
  void barrier(const std::string& label = "");

  /// Returns the device of tensors that the group creates. Operations accept tensors on
  /// this device, and possibly on other devices (takes()).
  virtual at::Device device() const {
    return at::kCPU;
  }

  /// Returns whether operations accept tensors on the device `where`.
  virtual bool takes(at::Device where) const {
    return size_ == 1 || where == device();
  }

  /// Returns a group of the same ranks for tensors in main memory: this group, or
  /// another group if this one is for devices (backends/device.h).
  virtual Communicator& host_group() {
    return *this;
  }

  /// Returns the ranks of this rank's host, as a group of this communicator that shares
  /// memory; null if there is no such group. Its calls are ordered with the calls of
  /// this communicator.
  virtual Communicator* ranks_of_host() {
    return nullptr;
  }

  /// Returns a flat tensor of zeros in main memory, for data that this group reduces.
  /// Some backends reduce such a tensor without copying it. Not collective;
  /// thread-safe. The tensor may outlive the communicator.
  [[nodiscard]] virtual at::Tensor make_buffer(int64_t numel, at::ScalarType dtype);

  /// Returns this group's interface for calls between ranks (rpc/rpc.h), or null if its
  /// ranks cannot call each other.
  virtual RpcBackend* rpc_backend() {
    return nullptr;
  }

  /// Returns whether all ranks can access the memory that make_buffer() returns.
  virtual bool shares_memory() const {
    return false;
  }

  /// Forms a new group of the ranks with equal `color`, in order of rank. Collective.
  [[nodiscard]] std::unique_ptr<Communicator> split(int color);

  /// Returns all ranks' tensors, stacked in rank order: size() x the shape of `mine`.
  /// The result is on the device of `mine`. Collective; blocks.
  [[nodiscard]] at::Tensor stack(const at::Tensor& mine, const std::string& label = "");

  /// Returns the SHA-256 of each rank's text, as size() rows of 64 hex digits.
  /// Collective; blocks.
  [[nodiscard]] at::Tensor stack_digests(
      const std::string& text, const std::string& label = "");

  /// Returns the root's text on every rank. The text of other ranks is ignored.
  /// Collective; blocks.
  [[nodiscard]] std::string broadcast_text(
      const std::string& text, int root, const std::string& label = "");

  /// Calls `action` on rank 0, and returns its text on every rank. If `action` throws,
  /// all ranks throw: rank 0 rethrows the error, and the other ranks throw DataError
  /// with the first line of its message. Collective; blocks.
  std::string on_rank_0(
      const std::function<std::string()>& action, const std::string& label = "");

  /// Compares the texts of all ranks. If they differ, throws ConfigError, such as
  /// "recipes differ: rank 0 and rank 2" for `what` "recipes", on every rank.
  /// Collective; blocks.
  void check_equal(const std::string& what, const std::string& text);

 protected:
  // Operations that a backend implements. The base class has already checked the
  // tensors, and size() is greater than 1.
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
  [[nodiscard]] virtual std::unique_ptr<Communicator> do_split(int color) = 0;

  // The ranks that form a new group, in order, and this rank's number among them.
  struct Part {
    std::vector<int> ranks;
    int rank = 0;
    /// Returns the number of ranks.
    int size() const {
      return static_cast<int>(ranks.size());
    }
  };
  // Returns the ranks with an equal `color`. Collective.
  Part find_part(int color);

  // Returns whether `part` is this rank's slice of `whole`.
  bool is_own_slice(const at::Tensor& part, const at::Tensor& whole) const {
    const auto offset = rank_ * static_cast<int64_t>(part.nbytes());
    return part.numel() == 0 || static_cast<char*>(whole.data_ptr()) + offset ==
                                    static_cast<char*>(part.data_ptr());
  }

  // Adds time for which a backend blocked the caller outside of wait().
  void add_waited(std::chrono::duration<double> time) {
    stats_.waited_seconds += time.count();
  }

  // Returns a peer that has failed, -1 if no failed peer is known.
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
  void check_tensor(const char* operation, const at::Tensor& tensor) const;
  void check_root(const char* operation, int root) const;
  void check_peer(const char* operation, int peer) const;

  int rank_;
  int size_;
  std::string backend_;
  int64_t sequence_ = 0;
  CommStats stats_;
  Trace* trace_ = nullptr;
};

/// Returns a group of one rank.
[[nodiscard]] std::unique_ptr<Communicator> make_single_communicator();

}  // namespace tandem
