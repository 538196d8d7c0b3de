#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
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

  FakeStreams(uint64_t seed, bool callers_are_hosts)
      : random_(seed), callers_are_hosts_(callers_are_hosts) {}

  /// Of a rank's device.
  DeviceStreams table(int rank);

  Lock lock() {
    return Lock(mutex_);
  }

  /// The rank's current one.
  std::shared_ptr<FakeStream> current(int rank);
  std::shared_ptr<FakeStream> at(StreamHandle handle) const;

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
  struct Event {
    int64_t recorded = 0;
    int64_t reached = 0;
  };

  void record(EventHandle event, StreamHandle on);
  void wait(Lock& lock, StreamHandle on, EventHandle event);
  bool query(EventHandle event);

  std::mutex mutex_;
  std::mt19937_64 random_;
  bool callers_are_hosts_;
  // All, destroyed or not: what lies on them still runs.
  std::vector<std::shared_ptr<FakeStream>> streams_;
  std::map<int, std::shared_ptr<FakeStream>> current_;
  std::map<StreamHandle, std::shared_ptr<FakeStream>> created_;
  std::map<EventHandle, std::shared_ptr<Event>> events_;
  std::vector<std::string> misuse_;
};

}  // namespace tandem
