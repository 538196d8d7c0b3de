#include "tandem/checkpoint/checkpoint_writer.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/signals.h"

namespace tandem {

namespace {

// Increase of the thread's nice value: on a core with a computing rank, the thread gets
// a quarter of the time.
constexpr int kNiceness = 5;

bool has_shape_of(const at::Tensor& copy, const at::Tensor& source) {
  return copy.defined() && copy.scalar_type() == source.scalar_type() &&
         copy.sizes() == source.sizes();
}

// Copies `sources` to `copies` from position `count` on, which it increases.
void copy_tensors(
    const std::vector<NamedTensor>& sources, std::vector<NamedTensor>& copies,
    size_t& count) {
  for (const auto& [name, tensor] : sources) {
    const at::Tensor source = tensor.detach();
    if (count == copies.size()) {
      copies.emplace_back();
    }
    auto& [name_of_copy, copy] = copies[count++];
    if (!has_shape_of(copy, source)) {
      copy = at::empty(source.sizes(), source.scalar_type());
    }
    if (source.is_cpu() && source.is_contiguous()) {
      std::memcpy(copy.data_ptr(), source.data_ptr(), source.nbytes());
    } else {
      copy.copy_(source);
    }
    name_of_copy = name;
  }
}

std::vector<NamedTensor> take(const std::vector<NamedTensor>& copies, size_t& count) {
  const auto end = copies.begin() + static_cast<std::ptrdiff_t>(count);
  count = 0;
  return {copies.begin(), end};
}

}  // namespace

std::string reason_of(const SaveOutcome& outcome) {
  try {
    std::rethrow_exception(outcome.error);
  } catch (const std::exception& error) {
    return first_line(error);
  }
}

CheckpointWriter::~CheckpointWriter() {
  // A save is in progress here only if the caller ends because of another error.
  if (const auto outcome = wait(); outcome && outcome->error) {
    log_warning(
        fmt::format("step {} was not saved: {}", outcome->step, reason_of(*outcome)));
  }
  if (thread_.joinable()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
}

void CheckpointWriter::start_thread() {
  if (thread_.joinable()) {
    return;
  }
  // Signals must interrupt a rank that waits in a system call, on another thread.
  const BlockedSignals inherited;
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    throw Error(
        "[checkpoint] cannot start the thread that saves checkpoints: " +
        first_line(error));
  }
}

void CheckpointWriter::serve() {
  // On Linux this changes the priority of this thread only.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kNiceness);
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return task_.valid() || ends_; });
    if (!task_.valid()) {
      return;
    }
    auto task = std::exchange(task_, {});
    lock.unlock();
    task();
    lock.lock();
  }
}

void CheckpointWriter::prepare(const TrainingState& state) {
  copy(state);
  num_model_ = 0;
  num_optimizer_ = 0;
}

void CheckpointWriter::copy(const TrainingState& piece) {
  TANDEM_CHECK(!path_.valid(), "copy() was called while a save reads the copies");
  start_thread();
  copy_tensors(piece.model, copies_.model, num_model_);
  copy_tensors(piece.optimizer, copies_.optimizer, num_optimizer_);
}

void CheckpointWriter::start(CheckpointContent content, Save save) {
  copy(content.state);
  content.state = {
      take(copies_.model, num_model_), take(copies_.optimizer, num_optimizer_)};
  step_ = content.position.step;
  std::packaged_task<std::string()> task(
      [content = std::move(content), save = std::move(save)] { return save(content); });
  path_ = task.get_future();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    task_ = std::move(task);
  }
  changed_.notify_one();
}

void CheckpointWriter::start(
    const std::string& directory, CheckpointContent content,
    const KeptCheckpoints& kept, std::function<void()> check_run) {
  start(
      std::move(content), [directory, kept, check_run = std::move(check_run)](
                              const CheckpointContent& whole) {
        return save_checkpoint(directory, whole, kept, check_run);
      });
}

bool CheckpointWriter::is_done() const {
  return path_.valid() &&
         path_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::optional<SaveOutcome> CheckpointWriter::poll() {
  return is_done() ? wait() : std::nullopt;
}

std::optional<SaveOutcome> CheckpointWriter::wait() {
  if (!path_.valid()) {
    return std::nullopt;
  }
  SaveOutcome outcome{step_, "", nullptr};
  try {
    outcome.path = path_.get();
  } catch (...) {
    outcome.error = std::current_exception();
  }
  return outcome;
}

}  // namespace tandem
