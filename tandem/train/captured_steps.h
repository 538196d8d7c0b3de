#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/device/device_graph.h"
#include "tandem/parallel/strategy.h"
#include "tandem/parallel/update/two_part_step.h"

namespace tandem {

/// Makes a strategy's steps: with --executor cudagraph each as one graph that its
/// device captured once for each size of batch, and with the bits of train_step(). The
/// steps before, and those that cannot be captured, are train_step()'s. Not
/// thread-safe.
///
/// What the host does in a step happens while it is captured, and not again: a model of
/// one's own has to do the same each time.
class CapturedSteps {
 public:
  // So often a size of batch comes before it is captured: libraries make what they keep
  // at their first calls.
  static constexpr int64_t kStepsBefore = 2;
  // Each size of batch has memory of its own.
  static constexpr size_t kMostSizes = 4;

  /// `wanted`: else every step is train_step()'s. `say` gets a line when it is known
  /// that steps are not captured, and why, once. All outlive it.
  CapturedSteps(
      Strategy& strategy, const ModelArenas& arenas, bool wanted,
      std::function<void(const std::string& line)> say);

  StepSums train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context);

  /// Launches the graph launched last once more, as it is: with that step's batch, rate
  /// and all. For measurements. There must be one.
  void launch_again();

  /// How many steps were launched as graphs.
  int64_t num_launched() const {
    return num_launched_;
  }

 private:
  struct Captured {
    int64_t times_seen = 0;
    // With inputs and targets where the graph reads them.
    std::vector<Batch> batches;
    // Whether those are ours, not the loader's.
    bool own = false;
    std::unique_ptr<DeviceGraph> graph;
    // Written by each launch.
    StepSums sums;
    // What ranks do in it.
    CommStats held;
  };

  // Null where the step is train_step()'s.
  Captured* find(const std::vector<Batch>& micro_batches, const StepContext& context);
  void bring(const std::vector<Batch>& micro_batches, Captured& to);
  // Whether there is a graph then.
  bool capture(Captured& of, const StepContext& context);
  void launch(Captured& captured, const CommStats& held);
  void give_up(const std::string& reason);

  Strategy& strategy_;
  const ModelArenas& arenas_;
  std::function<void(const std::string&)> say_;
  // Null: nothing is captured, or no more.
  TwoPartStep* parts_ = nullptr;
  bool said_too_many_ = false;
  // By the sizes of inputs and targets.
  std::map<std::vector<int64_t>, Captured> sizes_;
  Captured* last_launched_ = nullptr;
  int64_t num_launched_ = 0;
};

}  // namespace tandem
