#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tandem/base/text.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/train/trainer.h"
#include "tests/parallel/replica.h"
#include "tests/train/thread_run.h"

namespace tandem {

using Lines = std::vector<std::string>;

/// Returns a config for two thread ranks. With 64 samples, each rank makes four steps
/// of 8 samples per epoch.
inline RunConfig small_config() {
  RunConfig config = thread_config(ModelKind::simplenet, 2);
  config.optimizer.lr = 0.1;
  config.output.log_every = 2;
  return config;
}

struct Printed {
  // Lines on standard output. The lines of each rank are in the order in which the rank
  // printed them. Lines of different ranks may be interleaved.
  Lines lines;
  Summary summary;
};

/// Trains on 64 images of noise with config.ranks.nproc thread ranks. Returns the
/// printed lines and the summary of rank 0.
inline Printed run(const RunConfig& config) {
  const DatasetSplits data{noise_images(64), noise_images(10)};
  Printed result;
  testing::internal::CaptureStdout();
  run_ranks(config.num_ranks_here(), [&](Communicator& comm) {
    const auto summary = train(config, data, comm);
    if (comm.rank() == 0) {
      result.summary = summary;
    }
  });
  result.lines = split(testing::internal::GetCapturedStdout(), '\n');
  return result;
}

inline Lines starting_with(const Lines& lines, const std::string& start) {
  Lines found;
  std::copy_if(
      lines.begin(), lines.end(), std::back_inserter(found),
      [&](const auto& line) { return line.rfind(start, 0) == 0; });
  return found;
}

inline double last_number(const std::string& line) {
  return std::stod(line.substr(line.rfind(' ') + 1));
}

}  // namespace tandem
