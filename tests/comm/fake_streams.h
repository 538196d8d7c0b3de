#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/nccl/streams.h"

namespace tandem {

/// What lies on a stream in main memory.
struct FakeTask {
  // Whether it can run once it is the stream's first; null: always.
  std::function<bool()> ready;
  // Says whether it has ended, and else is run again.
  std::function<bool()> run;
  // Whose it is, of the tasks that others look for.
  const void* owner = nullptr;
};

struct FakeStream {
  std::deque<FakeTask> tasks;
  // The caller's own thread.
  bool host = false;
};

/// Streams of devices in main memory. What lies on them runs while some thread asks for
/// an event, one task after another, of a stream that is chosen at random.
///
/// Whoever calls a member other than table() and lock() holds the lock.
class FakeStreams : public std::enable_shared_from_this<FakeStreams> {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// `touch`: what runs each task; null: nothing special.
  FakeStreams(
      uint64_t seed, bool callers_are_hosts,
      std::function<void(const std::function<void()>&)> touch)
      : random_(seed),
        callers_are_hosts_(callers_are_hosts),
        touch_(std::move(touch)) {}

  /// Of a rank's device.
  DeviceStreams table(int rank);

  Lock lock() {
    return Lock(mutex_);
  }

  /// The rank's current one.
  std::shared_ptr<FakeStream> current(int rank);
  std::shared_ptr<FakeStream> at(StreamHandle handle) const;

  /// A graph of what the rank's thread puts on its current stream, and on those that
  /// come to wait for that: nothing of it runs, and `note` gets it, in order, as
  /// functions that put it on streams to run. Those may be called again and again,
  /// behind end_capture(), without the lock.
  void begin_capture(int rank, std::function<void(std::function<void()>)> note);
  /// What was put on another stream and is not waited for by the first is misuse.
  void end_capture(int rank);

  /// Whether the stream is part of a capture; then `put`, called with the stream that
  /// stands for it in the graph, is noted.
  bool note(
      const std::shared_ptr<FakeStream>& stream,
      std::function<void(const std::shared_ptr<FakeStream>&)> put);

  /// Runs one task of those that can run; false when none can.
  bool step();

  /// Runs tasks until `done`. What takes 20 s is misuse, called `what`.
  void run_until(
      Lock& lock, const std::string& what, const std::function<bool()>& done);

  /// A random number from 0 to `most`.
  int up_to(int most) {
    return static_cast<int>(random_() % static_cast<uint64_t>(most + 1));
  }

  void wrong(const std::string& what) {
    misuse_.push_back(what);
  }
  const std::vector<std::string>& misuse() const {
    return misuse_;
  }

  /// Streams and events that nobody has given back.
  int num_alive() const;

  /// Tasks hold what holds streams.
  void drop_tasks();

 private:
  struct Capture {
    std::function<void(std::function<void()>)> note;
    std::shared_ptr<FakeStream> first;
    // What stands in the graph for each stream of the capture.
    std::map<std::shared_ptr<FakeStream>, std::shared_ptr<FakeStream>> streams;
    // Those with something that the first does not wait for.
    std::set<std::shared_ptr<FakeStream>> apart;
  };
  struct Event {
    int64_t recorded = 0;
    int64_t reached = 0;
    // Where it was recorded in a capture.
    std::shared_ptr<Capture> capture;
    std::shared_ptr<FakeStream> captured_on;
    // Stands for it in the graph.
    std::shared_ptr<Event> in_graph;
  };
  using EventPtr = std::shared_ptr<Event>;
  using StreamPtr = std::shared_ptr<FakeStream>;

  std::shared_ptr<Capture> capture_of(const StreamPtr& stream) const;
  static void put_record(const EventPtr& event, const StreamPtr& on);
  void put_wait(Lock& lock, const StreamPtr& on, const EventPtr& event);
  void record(EventHandle event, StreamHandle on);
  void wait(Lock& lock, StreamHandle on, EventHandle event);
  void wait_in_capture(const StreamPtr& on, const EventPtr& event);
  bool query(EventHandle event);

  std::mutex mutex_;
  std::mt19937_64 random_;
  bool callers_are_hosts_;
  std::function<void(const std::function<void()>&)> touch_;
  // All, destroyed or not: what lies on them still runs.
  std::vector<std::shared_ptr<FakeStream>> streams_;
  std::map<int, std::shared_ptr<FakeStream>> current_;
  std::map<StreamHandle, std::shared_ptr<FakeStream>> created_;
  std::map<EventHandle, EventPtr> events_;
  // By rank.
  std::map<int, std::shared_ptr<Capture>> captures_;
  std::vector<std::string> misuse_;
};

}  // namespace tandem
