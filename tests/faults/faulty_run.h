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
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem {

/// The remains of a run's process, however it ends.
struct Left {
  int64_t operations = 0;
  int64_t steps = 0;
  // The newest checkpoint that was reported to the observer.
  int64_t told_step = -1;
  // Step whose checkpoint, once reported, ends the process with kFaultExit; -1: none.
  int64_t dies_at = -1;
  // For the test.
  int64_t noted = 0;
  char parameters[65] = "";
  // The message of an error.
  char faulty[300] = "";
};

/// Called after each step, in the process of the run.
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
    if (left_.told_step == left_.dies_at) {
      _exit(kFaultExit);
    }
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

/// Three steps of a small model, with a checkpoint after each and one after the
/// evaluation.
inline RunConfig faulty_config(const std::string& out) {
  RunConfig config;
  config.model.kind = ModelKind::simplenet;
  config.exec.executor = ExecutorKind::eager;
  config.optimizer.kind = OptimizerKind::sgd;
  config.optimizer.lr = 0.1;
  config.optimizer.momentum = 0.9;
  config.training.batch_size = 8;
  config.training.epochs = 1;
  // So that there is a file of the rank.
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

/// A run in a process that is forked from this one, which has loaded LibTorch already.
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

inline int lines_with(const std::string& text, const std::string& word) {
  std::istringstream stream(text);
  int count = 0;
  for (std::string line; std::getline(stream, line);) {
    count += line.find(word) != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace tandem
