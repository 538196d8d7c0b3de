#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tandem/checkpoint/checkpoint.h"

namespace tandem {

/// Result of a save.
struct SaveOutcome {
  int64_t step = 0;
  // Path of the checkpoint; "" if the save failed.
  std::string path;
  std::exception_ptr error;
};

/// Returns the reason why a save failed, in one line.
std::string reason_of(const SaveOutcome& outcome);

/// Writes checkpoints on a separate thread while training continues, one at a time.
///
/// Training pauses only while the state is copied. The thread checks that values are
/// finite, and hashes, writes and flushes the files. It has a lower priority and
/// receives no signals. The memory of the copy is kept from save to save. Not
/// thread-safe.
class CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Waits for the save in progress. If that save fails, logs a warning.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Allocates memory for copies of such a state before the first save. Do not call it
  /// while a save is in progress.
  void prepare(const TrainingState& state);

  /// Copies the tensors of `content` and starts save_checkpoint(). The outcome of the
  /// previous save must have been returned.
  void start(
      const std::string& directory, CheckpointContent content,
      const KeptCheckpoints& kept);

  /// Return each outcome once. poll() returns none while the save is in progress,
  /// wait() waits for it. Without a save there is no outcome.
  std::optional<SaveOutcome> poll();
  std::optional<SaveOutcome> wait();

 private:
  void start_thread();
  void serve();

  // Last copy of the state.
  TrainingState copies_;
  // Result of the save in progress; valid until its outcome is returned.
  std::future<std::string> path_;
  int64_t step_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Next task of the thread, if valid, and whether the thread ends after it.
  std::packaged_task<std::string()> task_;
  bool ends_ = false;
  // Runs until the end: a new thread would start with the priority of the training
  // thread.
  std::thread thread_;
};

}  // namespace tandem
