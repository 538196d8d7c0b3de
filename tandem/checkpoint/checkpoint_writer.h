#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tandem/checkpoint/checkpoint.h"

namespace tandem {

/// Result of a save: the path of the checkpoint, or an error.
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
/// finite, and hashes, writes and flushes the files. It has a lower priority and blocks
/// all signals. The memory of the copy is reused for the next save. Not thread-safe.
class CheckpointWriter {
 public:
  CheckpointWriter() = default;
  /// Waits for the save in progress. If that save fails, logs a warning.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Allocates the memory for a copy of `state`. Without this call, the first save
  /// would pause training longer than later saves. Do not call it while a save is in
  /// progress.
  void prepare(const TrainingState& state);

  /// Copies tensors for the next start(). Do not call it while a save is in progress.
  void copy(const TrainingState& piece);

  /// Writes a content and returns the path of the checkpoint, or "".
  using Save = std::function<std::string(const CheckpointContent& content)>;

  /// Copies the tensors of `content` and starts `save` on the thread. Its content has
  /// the tensors of all copy() since the last start(). Before this call, poll() or
  /// wait() must have returned the outcome of the previous save.
  void start(CheckpointContent content, Save save);

  /// Starts save_checkpoint(), which calls `check_run` on the thread.
  void start(
      const std::string& directory, CheckpointContent content,
      const KeptCheckpoints& kept, std::function<void()> check_run = {});

  /// Returns whether poll() would return an outcome.
  bool is_done() const;

  /// Returns the outcome of the last save, only once. While the save is in progress,
  /// poll() returns nullopt, and wait() waits for its end. Without a save, or after the
  /// outcome was returned, both return nullopt.
  std::optional<SaveOutcome> poll();
  std::optional<SaveOutcome> wait();

 private:
  void start_thread();
  void serve();

  // Memory of copies of the state, and the numbers of tensors copied for the next save.
  TrainingState copies_;
  size_t num_model_ = 0;
  size_t num_optimizer_ = 0;
  // Result and step of the save in progress. path_ is valid until the outcome is
  // returned.
  std::future<std::string> path_;
  int64_t step_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Next save for the thread; not valid if there is no save.
  std::packaged_task<std::string()> task_;
  // True if the thread ends when it has no task.
  bool ends_ = false;
  // One thread for all saves, because a new thread would start with the priority of the
  // training thread.
  std::thread thread_;
};

}  // namespace tandem
