#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/nccl/nccl_group.h"

namespace tandem {

/// Devices in main memory, one for each rank of this process (fake_streams.h), with
/// NCCL between them (fake_nccl.h): the functions that the communicator over NCCL
/// stands on.
///
/// What is put on a stream runs late and in a random order that depends on the seed:
/// only what lies on one stream, or waits for an event, keeps its order.
///
/// Any thread. Outlived by the tables that it gives.
class FakeDevices {
 public:
  /// Whether a rank's LibTorch computes at once, in the rank's thread, as it does on a
  /// CPU, or puts its work on a stream, by run().
  enum class Caller { host, stream };

  /// `touch` runs what touches the devices' memory.
  using Touch = std::function<void(const std::function<void()>& work)>;
  explicit FakeDevices(
      uint64_t seed, Caller caller = Caller::host, Touch touch = nullptr);
  ~FakeDevices();

  /// `where`: what LibTorch calls it.
  NcclDevice device(int rank, at::Device where = at::kCPU);

  /// Puts a kernel on the rank's current stream, which can run once `ready` says so.
  void run(
      int rank, std::function<void()> kernel, std::function<bool()> ready = nullptr);

  /// Captures what `work` puts on the rank's current stream, and on those that come to
  /// wait for it. What it returns puts that there to run, each time it is called.
  std::function<void()> capture(int rank, const std::function<void()>& work);

  /// The same where `note` makes the graph: of functions that put things on streams, in
  /// their order.
  void capture(
      int rank, const std::function<void()>& work,
      std::function<void(std::function<void()>)> note);

  /// Blocks until all of the rank's current stream has run, as CUDA does: with no
  /// timeout, but what takes 20 s counts as misuse.
  void synchronize(int rank);

  /// NCCL reports `error` on all communicators of the rank from now on.
  void report(int rank, NcclResult error);

  /// When a rank aborts, NCCL tells its peers.
  void tell_of_aborts();

  /// How many communicators were aborted.
  int num_aborted() const;

  /// Streams, events and communicators that nobody has given back.
  int num_alive() const;

  /// What NCCL or CUDA would not have taken, or would have hung at; empty in a test
  /// that is right.
  std::vector<std::string> misuse() const;

 private:
  std::shared_ptr<class FakeStreams> streams_;
  std::shared_ptr<class FakeNccl> nccl_;
};

}  // namespace tandem
