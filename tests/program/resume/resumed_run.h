#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/program/program.h"

namespace tandem {

// Returns the arguments of a run with all features that could make a resumed run
// differ: dropout, Adadelta's state, a schedule and accumulation. Each of three ranks
// has 21 batches per epoch. A step has two batches, so an epoch has 11 steps.
inline Arguments trained(const std::string& out, const std::string& batch_size = "16") {
  return {"train",    "--model",      "convnet", "--limit",
          "1000",     "--epochs",     "3",       "--batch-size",
          batch_size, "--accumulate", "2",       "--schedule",
          "step",     "--log-every",  "5",       "--eval-batch-size",
          "100",      "--out",        out};
}

inline const Arguments kThreeRanks = {"--nproc", "3"};
inline const Arguments kResume = {"--resume", "auto"};
inline const Arguments kKeepAll = {"--keep-checkpoints", "0"};
constexpr int64_t kSteps = 3 * 11;

inline std::string run_to_end(const Arguments& arguments, const std::string& out) {
  run_ok(arguments);
  return hash_of(out);
}

inline std::string checkpoint(const std::string& out, int64_t step) {
  std::string number = std::to_string(step);
  number.insert(0, 8 - number.size(), '0');
  return out + "/checkpoints/step-" + number;
}

}  // namespace tandem
