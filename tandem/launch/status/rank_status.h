#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/process.h"

namespace tandem {

/// Work that a rank does.
enum class Activity : int32_t { starting, data, training, evaluation, saving };

/// Names of the activities, in the order of their values.
constexpr const char* kActivityNames[] = {
    "starting", "loading data", "training", "evaluating", "saving"};

/// Returns the name of an activity, such as "saving".
const char* name_of(Activity activity);

/// Activity, wait and figures of a rank at one moment. Times are in seconds.
struct RankStatus {
  int rank = 0;
  // Name of the rank's host, "" if it is unknown.
  std::string host;
  // Process id; 0 if the rank has not reported, because it is still starting or does
  // not use tandem.
  pid_t pid = 0;
  Activity activity = Activity::starting;
  // True if the process is suspended (SIGSTOP) or frozen by its control group, or in an
  // uninterruptible wait while it should wait for other ranks.
  bool suspended = false;
  // Communication for which the rank waits, such as "all_reduce #12 (loss)", and the
  // time since the wait began. If the rank does not wait, these are "" and 0.
  std::string operation;
  double waiting_seconds = 0;
  // Number of the epoch, from 1, and number of steps since the run began; -1 before the
  // first step. step_seconds is the time since the last step ended.
  int64_t epoch = -1;
  int64_t step = -1;
  double step_seconds = 0;
  // Values of the last report; 0 before the first report.
  double loss = 0;
  double learning_rate = 0;
  double samples_per_second = 0;
  // Step of the newest checkpoint, and the time since it was saved. The step is -1 if
  // there is no checkpoint.
  int64_t checkpoint_step = -1;
  double checkpoint_seconds = 0;
};

/// Memory in which the ranks of a host report their status. The launcher makes it; the
/// ranks write to it, and the launcher reads it without waiting for them. The object
/// must outlive the ranks.
class StatusBoard {
 public:
  /// Makes memory for the ranks `first_rank` to `first_rank + num_ranks - 1`.
  StatusBoard(int first_rank, int num_ranks);
  ~StatusBoard();
  StatusBoard(const StatusBoard&) = delete;
  StatusBoard& operator=(const StatusBoard&) = delete;

  /// Returns the environment variable that passes the memory to the ranks.
  Variables variables() const;

  /// Returns the statuses of all ranks, in order of rank.
  std::vector<RankStatus> read() const;

 private:
  int first_rank_;
  int num_ranks_;
  int fd_;
  void* slots_;
};

/// Returns the environment variable with the number of a rank on its host, for the
/// rank's process. LOCAL_RANK can have another value (--virtual-local-rank).
std::pair<std::string, std::string> status_slot_variable(int local_rank);

// The following functions report the status of this rank to the launcher. They do
// nothing if tandem's launcher did not start this process. Only one thread of a process
// can report: the first thread with the rank of this process (thread_rank(),
// base/log.h) that calls one of the functions. If ranks are threads, only the first
// rank of the process therefore reports. Each call takes about 20 ns.

void report_activity(Activity activity);
/// Reports that a step has ended: `epoch` from 0, `step` since the run began.
void report_step(int64_t epoch, int64_t step);
void report_values(double loss, double learning_rate, double samples_per_second);
void report_checkpoint(int64_t step);

/// Reports that this rank waits for other ranks, until the object is destroyed. If
/// waits are nested, only the outermost is reported.
class ReportedWait {
 public:
  /// `operation`, `number` and `label` name the communication. A number of 0 and an
  /// empty label are left out.
  explicit ReportedWait(
      const char* operation, int64_t number = 0, const std::string& label = "");
  ~ReportedWait();
  ReportedWait(const ReportedWait&) = delete;
  ReportedWait& operator=(const ReportedWait&) = delete;

 private:
  bool reports_;
};

}  // namespace tandem
