#pragma once

#include <cstdint>

namespace tandem {

/// Decides for which batches of a mapped file the next batch is read ahead.
///
/// Reading ahead takes a system call per sample. If all pages are in memory, these
/// calls can take as long as the steps of a small network. So batches are read ahead
/// only after the thread has waited for pages: for kBatches batches. The batches after
/// them are not read ahead, which shows whether pages are still missing.
class ReadAheadRule {
 public:
  static constexpr int64_t kBatches = 1024;

  /// `major_faults`: num_major_faults() (mapped_file.h) at the start.
  explicit ReadAheadRule(int64_t major_faults) : major_faults_(major_faults) {}

  /// Returns whether to read the next batch ahead. `major_faults` is the current
  /// num_major_faults(). Call it once per batch.
  bool update(int64_t major_faults) {
    if (major_faults != major_faults_) {
      major_faults_ = major_faults;
      left_ = kBatches;
    }
    if (left_ == 0) {
      return false;
    }
    --left_;
    return true;
  }

 private:
  int64_t major_faults_;
  // Number of batches until reading ahead ends.
  int64_t left_ = 0;
};

}  // namespace tandem
