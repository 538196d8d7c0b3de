#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tandem/comm/nccl/nccl_communicator.h"
#include "tandem/comm/nccl/nccl_group.h"

namespace tandem {

/// What a rank has under way over NCCL: a group of all ranks, one for each direction
/// between two, and a thread that takes them further and gives up in time
/// (nccl_communicator.h says when).
///
/// One thread at a time calls; Work may be waited for by another.
class NcclTraffic {
 public:
  /// Forms the group of all ranks. Throws std::runtime_error when that fails.
  NcclTraffic(
      const NcclDevice& device, std::shared_ptr<StoreClient> store, std::string name,
      int rank, int size, const NcclOptions& options);
  /// Ends all in order, unless something failed or an exception is on its way.
  ~NcclTraffic();
  NcclTraffic(const NcclTraffic&) = delete;
  NcclTraffic& operator=(const NcclTraffic&) = delete;

  /// Start an operation of all ranks, or a message between two, one of them this one;
  /// of those the sender is NCCL's rank 0. The Work must not outlive this. They throw
  /// std::runtime_error once something has failed.
  [[nodiscard]] WorkPtr start(std::shared_ptr<NcclFlight> flight);
  [[nodiscard]] WorkPtr start_message(
      int from, int to, std::shared_ptr<NcclFlight> flight);

  /// Calls `launch`, which puts a graph that holds operations on the current stream,
  /// and gives up where the graphs have not ended in time from the last. `make_flight`
  /// is called where none is on its way. Throws std::runtime_error once something has
  /// failed.
  void launch_graph(
      const std::function<void()>& launch,
      const std::function<std::shared_ptr<NcclFlight>()>& make_flight);

 private:
  using Flight = std::shared_ptr<NcclFlight>;
  using Lock = std::unique_lock<std::mutex>;
  class UnderWay;

  void form();
  std::string missing_ranks();
  [[nodiscard]] WorkPtr fly(Lock& lock, NcclGroup& group, Flight flight);
  NcclGroup& channel(int from, int to);

  void watch();
  void look();
  void fail(const std::string& operation, const std::string& cause);
  void fail_late(const NcclFlight& flight, const Deadline& deadline);
  [[noreturn]] void throw_failure(const std::string& operation) const;
  template <typename Done>
  void poll(Lock& lock, const Flight& flight, const Deadline& deadline, Done&& done);
  void finish();

  template <typename Action>
  void for_each_group(const Action& action) {
    if (all_) {
      action(*all_);
    }
    for (auto& [way, group] : channels_) {
      action(*group);
    }
  }

  NcclDevice device_;
  std::shared_ptr<StoreClient> store_;
  std::string name_;
  int rank_;
  int size_;
  NcclOptions options_;

  // Of all that follows.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<NcclGroup> all_;
  // By (from, to).
  std::map<std::pair<int, int>, std::unique_ptr<NcclGroup>> channels_;
  // Stands for the graphs on their way; null before the first.
  Flight graph_;
  // What failed first.
  struct Failure {
    std::string operation;
    std::string cause;
  };
  std::optional<Failure> failure_;
  bool leaving_ = false;
  std::thread watch_;
};

}  // namespace tandem
