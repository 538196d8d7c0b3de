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

/// What became of a save.
struct SaveOutcome {
  int64_t step = 0;
  // The checkpoint's; "" when it failed.
  std::string path;
  std::exception_ptr error;
};

/// Why a save failed, in a line.
std::string reason_of(const SaveOutcome& outcome);

/// Writes checkpoints on a thread of its own while training goes on, one at a time. Who
/// trains pauses for a copy of the state only: finite values are checked, and files
/// hashed, written and flushed, by the thread, which has a lower priority and takes no
/// signals. The copy's memory is kept from save to save. Not thread-safe.
class CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Waits for the save in progress. A failure that nobody has taken is a warning.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Makes the memory for copies of such a state before the first save needs it. Not
  /// while a save is in progress.
  void prepare(const TrainingState& state);

  /// Copies the tensors of `content` and begins to save (save_checkpoint()). The
  /// outcome of the save before must have been taken.
  void start(
      const std::string& directory, CheckpointContent content,
      const KeptCheckpoints& kept);

  /// Each outcome once: poll() gives none while the save is in progress, wait() waits
  /// for it. None where there is no save.
  std::optional<SaveOutcome> poll();
  std::optional<SaveOutcome> wait();

 private:
  void start_thread();
  void serve();

  // What was last copied.
  TrainingState copies_;
  // What the save that was begun returns; valid while its outcome is not taken.
  std::future<std::string> path_;
  int64_t step_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  // What the thread does next, where it is valid, and whether it ends then.
  std::packaged_task<std::string()> task_;
  bool ends_ = false;
  // Runs until the end: a new one would begin with the priority of who trains.
  std::thread thread_;
};

}  // namespace tandem
