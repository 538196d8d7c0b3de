#include "tandem/parallel/ddp/replica_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/core/torch_compat.h"
#include "tandem/parallel/ddp/replica_random.h"

namespace tandem {

namespace {

// What of a thread's LibTorch an operator's result depends on.
class CallersState {
 public:
  CallersState() : autocast_dtype_(autocast_dtype(at::kCPU)) {}

  class Guard {
   public:
    explicit Guard(const CallersState& state) : guard_(state.state_) {
      set_autocast_dtype(at::kCPU, state.autocast_dtype_);
      // All threads share the cache, and a replica's weight is not another's.
      at::autocast::set_autocast_cache_enabled(false);
    }

   private:
    at::ThreadLocalStateGuard guard_;
  };

 private:
  at::ThreadLocalState state_;
  at::ScalarType autocast_dtype_;
};

}  // namespace

ReplicaThreads::ReplicaThreads(size_t count) {
  const int num_threads = at::get_num_threads();
  const int each = std::max(1, num_threads / static_cast<int>(count));
  try {
    for (size_t replica = 0; replica < count; ++replica) {
      const int threads = each < num_threads ? each : 0;
      threads_.emplace_back([this, replica, threads] { loop(replica, threads); });
    }
  } catch (const std::system_error& error) {
    end();
    throw ConfigError(
        "[data_parallel] no thread can be started for replica " +
        std::to_string(threads_.size()) + " of " + std::to_string(count) + ": " +
        first_line(error) + "; use fewer replicas");
  }
  run(count, [](size_t) {});
  // LibTorch takes what the last thread said for the number of new ones.
  if (each < num_threads) {
    at::set_num_threads(num_threads);
  }
}

ReplicaThreads::~ReplicaThreads() {
  end();
}

void ReplicaThreads::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) {
    thread.join();
  }
}

// `num_threads`: within an operator; 0 for LibTorch's default.
void ReplicaThreads::loop(size_t replica, int num_threads) {
  if (num_threads > 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    // When first asked, LibTorch gives a thread the number of the process.
    at::get_num_threads();
    at::set_num_threads(num_threads);
  }
  size_t done = 0;
  while (true) {
    std::function<void(size_t)> work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || run_ > done; });
      if (ends_) {
        return;
      }
      done = run_;
      if (replica >= count_) {
        continue;
      }
      work = work_;
    }
    work(replica);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--num_running_ == 0) {
      changed_.notify_all();
    }
  }
}

void ReplicaThreads::start(std::function<void(size_t)> work, size_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  work_ = std::move(work);
  count_ = count;
  num_running_ = count;
  ++run_;
}

void ReplicaThreads::run(size_t count, const std::function<void(size_t)>& work) {
  const CallersState state;
  ReplicaRandom random(count);
  std::vector<std::exception_ptr> failures(count);
  start(
      [&](size_t replica) {
        try {
          const CallersState::Guard as_caller(state);
          const ReplicaRandom::Scope own_numbers(random, replica);
          work(replica);
        } catch (...) {
          failures[replica] = std::current_exception();
        }
      },
      count);
  changed_.notify_all();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return num_running_ == 0; });
  }
  rethrow_first(failures);
}

void ReplicaThreads::rethrow_first(
    const std::vector<std::exception_ptr>& failures) const {
  const auto failed = std::find_if(
      failures.begin(), failures.end(),
      [](const auto& failure) { return failure != nullptr; });
  if (failed == failures.end()) {
    return;
  }
  const std::string who = "[data_parallel] replica " +
                          std::to_string(failed - failures.begin()) + " of " +
                          std::to_string(threads_.size()) + ": ";
  try {
    std::rethrow_exception(*failed);
  } catch (const std::exception& error) {
    std::throw_with_nested(Error(who + first_line(error)));
  } catch (...) {
    std::throw_with_nested(Error(who + "an exception that is no std::exception"));
  }
}

}  // namespace tandem
