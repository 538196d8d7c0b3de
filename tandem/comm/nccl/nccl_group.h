#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tandem/base/deadline.h"
#include "tandem/comm/nccl/nccl_api.h"
#include "tandem/comm/nccl/streams.h"

namespace tandem {

/// What a communicator over NCCL stands on: NCCL, a device's streams, and the device as
/// LibTorch calls it.
struct NcclDevice {
  std::shared_ptr<const NcclApi> nccl;
  std::shared_ptr<const DeviceStreams> streams;
  at::Device device;
};

/// An event, and its end.
class DeviceEvent {
 public:
  explicit DeviceEvent(std::shared_ptr<const DeviceStreams> streams);
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  EventHandle get() const {
    return event_;
  }

 private:
  std::shared_ptr<const DeviceStreams> streams_;
  EventHandle event_;
};

/// An operation on its way through an NcclGroup.
struct NcclFlight {
  enum class Stage {
    // NCCL has not been called yet.
    queued,
    // NCCL is still putting it on the stream.
    issued,
    // On the stream, with `done` behind it.
    launched,
    ended,
    failed
  };

  NcclFlight(
      const std::shared_ptr<const DeviceStreams>& streams, std::string operation,
      std::chrono::milliseconds timeout)
      : name(std::move(operation)), deadline(timeout), ready(streams), done(streams) {}

  // "all_reduce #5".
  std::string name;
  Deadline deadline;
  // Holds the tensors while NCCL uses them.
  std::function<NcclResult(NcclComm, StreamHandle)> call;
  // What its caller had put on the device before.
  DeviceEvent ready;
  DeviceEvent done;
  Stage stage = Stage::queued;
  // It goes in a graph, and has ended for the host once it is there.
  bool captured = false;
};

/// One of NCCL's communicators, not blocking, with a stream of its own. Operations run
/// on that in the order in which they come, each after what its caller had on the
/// current stream. Nothing blocks: progress() takes each a step further.
///
/// One thread at a time. All throw std::runtime_error with NCCL's words.
class NcclGroup {
 public:
  /// Begins to form. `find_id` gives the id that all ranks form with, once it is there.
  /// `ending_timeout`: longest time from an abort that the destructor waits for it.
  NcclGroup(
      const NcclDevice& device, int rank, int size,
      std::function<std::optional<NcclUniqueId>()> find_id,
      std::chrono::milliseconds ending_timeout);
  /// Aborts unless finished.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  bool formed() const {
    return formed_;
  }
  /// Those that have not ended.
  const std::deque<std::shared_ptr<NcclFlight>>& flights() const {
    return flights_;
  }
  /// Whether progress() has something to do for the device to go on.
  bool has_unlaunched() const {
    return !flights_.empty() && flights_.back()->stage != NcclFlight::Stage::launched;
  }

  /// Takes an operation from the calling thread, whose current stream it comes after;
  /// where a graph is captured there, it goes in that.
  void push(std::shared_ptr<NcclFlight> flight);

  /// Takes a graph that holds operations, and that the calling thread has put on its
  /// current stream. A flight that is_last() stands for that graph too then.
  void push_launched(std::shared_ptr<NcclFlight> flight);

  bool is_last(const std::shared_ptr<NcclFlight>& flight) const {
    return !flights_.empty() && flights_.back() == flight;
  }

  void progress();

  /// Ends NCCL's communicator, which must have formed and launched all: begins, and
  /// says whether it has ended.
  void begin_to_finish();
  bool finish();

  /// Operations fail now, and a thread of its own has NCCL end them: that may wait for
  /// the same of other ranks, or for other communicators of this one. Never throws.
  void abort();

 private:
  void form();
  bool settled();
  void issue(NcclFlight& flight);
  void launched(NcclFlight& flight);
  void retire();
  void check(NcclResult result, const char* call) const;

  NcclDevice device_;
  int rank_;
  int size_;
  std::function<std::optional<NcclUniqueId>()> find_id_;
  std::chrono::milliseconds ending_timeout_;
  NcclComm comm_ = nullptr;
  StreamHandle stream_;
  bool formed_ = false;
  bool aborted_ = false;
  std::thread aborting_;
  std::future<void> abort_ended_;
  std::optional<Deadline> abort_deadline_;
  std::deque<std::shared_ptr<NcclFlight>> flights_;
};

}  // namespace tandem
