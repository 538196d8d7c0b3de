#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/train/trainer.h"
#include "tests/faults/file_faults.h"
#include "tests/lines.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem {

/// Results of a child process that trains. They are in shared memory, so the test can
/// read them even if the process was killed.
struct Left {
  int64_t operations = 0;
  // Results of operations_before_exchange() and operation_kinds().
  int64_t before_exchange = -1;
  char kinds[1000] = "";
  int64_t steps = 0;
  // Step of the newest checkpoint that was reported to the observer; -1 if none was
  // reported.
  int64_t told_step = -1;
  // A value that the test's AfterStep function can set.
  int64_t noted = 0;
  char parameters[65] = "";
  // Call and path of the operation with the fault (faulty_operation()).
  char faulty[300] = "";
};

/// Function that is called after each step, in the process that trains.
using AfterStep = std::function<void(Left&)>;

class Told : public Observer {
 public:
  Told(Left& left, AfterStep after_step)
      : left_(left), after_step_(std::move(after_step)) {}

  Next on_step(const StepReport& step) override {
    left_.steps = step.step;
    if (after_step_) {
      after_step_(left_);
    }
    return Next::proceed;
  }
  void on_checkpoint(const std::string& path) override {
    left_.told_step = std::stoll(path.substr(path.rfind('-') + 1));
  }

 private:
  Left& left_;
  AfterStep after_step_;
};

struct Ended {
  int code = 0;
  Left left;
  std::string errors;
};

/// Returns the config of a run that makes three steps with a small model. It saves a
/// checkpoint after each step and one after the evaluation.
inline RunConfig faulty_config(const std::string& out) {
  RunConfig config;
  config.model.kind = ModelKind::simplenet;
  config.exec.executor = ExecutorKind::eager;
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.lr = 0.1;
  config.optimizer.momentum = 0.9;
  config.training.batch_size = 8;
  config.training.epochs = 1;
  // If min_delta is set, a checkpoint has a file with the state of the rank.
  config.training.min_delta = 1e-12;
  config.output.out = out;
  config.output.checkpoint_every = 1;
  config.output.keep_checkpoints = 2;
  config.output.keep_best = true;
  config.output.log_every = 1000;
  return config;
}

inline int train_here(
    const RunConfig& config, Left& left, const AfterStep& after_step) {
  static const DatasetSplits data{noise_images(24), noise_images(10)};
  try {
    Told told(left, after_step);
    CustomParts own;
    own.observer = &told;
    const auto comm = make_single_communicator();
    const auto summary = train(config, data, *comm, std::move(own));
    std::strncpy(left.parameters, summary.parameters_sha256.c_str(), 64);
  } catch (const std::exception& error) {
    log_error(first_line(error));
    return exit_code(error);
  }
  return 0;
}

/// Trains in a child process with a fault. The child is a fork of this process, so it
/// need not load LibTorch.
inline Ended train_in_child(
    const RunConfig& config, const FileFault& fault, const AfterStep& after_step = {}) {
  const Scratch scratch;
  auto* left = static_cast<Left*>(mmap(
      nullptr, sizeof(Left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
      0));
  *left = Left();
  const pid_t child = fork();
  if (child == 0) {
    const int errors =
        open((scratch / "errors").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(errors, STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    arm(fault);
    const int code = train_here(config, *left, after_step);
    left->operations = file_operations();
    left->before_exchange = operations_before_exchange();
    std::strncpy(left->kinds, operation_kinds().c_str(), sizeof(left->kinds) - 1);
    std::strncpy(left->faulty, faulty_operation().c_str(), sizeof(left->faulty) - 1);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Ended ended{
      WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), *left,
      read_file(scratch / "errors")};
  munmap(left, sizeof(Left));
  return ended;
}

}  // namespace tandem
