#pragma once

#include <malloc.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/exec/program/program.h"

namespace tandem {

/// Returns the planner of a program for a recorded step, which outlives the planner.
using MakePlanner = std::function<std::unique_ptr<CallPlanner>(const RecordedStep&)>;

/// Most recordings, each for inputs of other sizes, that an executor or a function
/// keeps.
constexpr size_t kMostRecordings = 16;

/// A recorded step and its programs that are not in flight. Not thread-safe.
class ProgramPool {
 public:
  ProgramPool(RecordedStep step, MakePlanner make_planner)
      : step_(std::move(step)), make_planner_(std::move(make_planner)) {
    // Returns the memory of the recorded step to the system before programs need it.
    malloc_trim(0);
  }
  ProgramPool(const ProgramPool&) = delete;
  ProgramPool& operator=(const ProgramPool&) = delete;

  /// Returns a program, which the pool must outlive.
  std::unique_ptr<Program> take() {
    if (free_.empty()) {
      return std::make_unique<Program>(step_, make_planner_(step_));
    }
    auto program = std::move(free_.back());
    free_.pop_back();
    return program;
  }
  void give_back(std::unique_ptr<Program> program) {
    free_.push_back(std::move(program));
  }
  /// Returns a program that is not in flight; null if there is none.
  const Program* idle() const {
    return free_.empty() ? nullptr : free_.back().get();
  }

 private:
  RecordedStep step_;
  MakePlanner make_planner_;
  std::vector<std::unique_ptr<Program>> free_;
};

}  // namespace tandem
