#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem {

/// A thread for each of some replicas, which live as long as this object.
///
/// LibTorch's threads within an operator (at::get_num_threads()) are shared out among
/// them when they start: each has its part, and at least one. A change later does not
/// reach them.
class ReplicaThreads {
 public:
  explicit ReplicaThreads(size_t count);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// Calls work(i) in thread i, for each i below `count`, and waits for all. They have
  /// the caller's grad mode, inference mode, autocast and its dtype, profiler and the
  /// like; and random numbers of their own (replica_random.h).
  ///
  /// One run at a time. When work throws, throws Error with the lowest number of a
  /// replica that did and the first line of its exception, which is nested in it
  /// (std::rethrow_if_nested); after all have ended.
  void run(size_t count, const std::function<void(size_t)>& work);

 private:
  void loop(size_t replica, int num_threads);
  void end();
  void start(std::function<void(size_t)> work, size_t count);
  void rethrow_first(const std::vector<std::exception_ptr>& failures) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Of the run at hand, or the last one.
  std::function<void(size_t)> work_;
  size_t count_ = 0;
  size_t num_running_ = 0;
  // Runs so far.
  size_t run_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
