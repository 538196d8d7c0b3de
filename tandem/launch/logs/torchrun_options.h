#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace tandem {

/// A choice of a rank's standard streams.
struct StreamChoice {
  bool output = false;
  bool errors = false;
};

/// A choice of streams for each rank of a host.
struct StreamsOfRanks {
  // StreamChoice of some ranks, by local rank.
  std::map<int, StreamChoice> of_rank;
  // StreamChoice of the other ranks.
  StreamChoice of_others;

  /// Returns whether any rank has the stream: &StreamChoice::output or
  /// &StreamChoice::errors.
  bool any(bool StreamChoice::*stream) const {
    bool any = of_others.*stream;
    for (const auto& [rank, streams] : of_rank) {
      any = any || streams.*stream;
    }
    return any;
  }

  StreamChoice at(int local_rank) const {
    const auto found = of_rank.find(local_rank);
    return found == of_rank.end() ? of_others : found->second;
  }
};

/// Log files of the ranks of a host, and the lines that appear on the console.
struct LogOptions {
  // Directory that contains the log directory of each run. "" means a new directory
  // in temporary_directory().
  std::string directory;
  // Streams that are written to files and do not appear on the console.
  StreamsOfRanks redirected;
  // Streams that are written to files and appear on the console.
  StreamsOfRanks teed;
  // Local ranks whose lines appear on the console; empty: all ranks.
  std::set<int> shown;
  // Lines of teed streams that contain any of these texts are also written to one file
  // for all ranks. Empty: there is no such file.
  std::vector<std::string> output_filters;
  std::vector<std::string> error_filters;
};

/// Services of torchrun for a program that is not tandem's: environment variables, log
/// files, an error file for each rank, and a summary of the first failure.
struct TorchrunOptions {
  // Name of the ranks' role. All hosts of a run must have the same role.
  std::string role = "default";
  // True if each rank has LOCAL_RANK 0, and a separate GPU in CUDA_VISIBLE_DEVICES.
  bool virtual_local_rank = false;
  LogOptions logs;
};

}  // namespace tandem
