#include "tandem/checkpoint/loop_checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <algorithm>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/checkpoint/optimizer_tensors.h"
#include "tandem/formats/tensor_list.h"

namespace tandem {

namespace {

constexpr const char* kGenerators = "generators";
constexpr const char* kSchedulerSteps = "scheduler/step_count";

// Gives access to the number of steps of any scheduler, a protected member.
class StepCount : public torch::optim::LRScheduler {
 public:
  static unsigned& of(torch::optim::LRScheduler& scheduler) {
    return scheduler.*(&StepCount::step_count_);
  }
};

at::Tensor generator_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// Text of a checkpoint's config. It distinguishes the checkpoints of loops with
// different optimizers, and of `tandem train`.
std::string config_of(const torch::optim::Optimizer& optimizer) {
  return "loop_optimizer = \"" + optimizer_name(optimizer) + "\"\n";
}

void check_config(
    const std::string& found, const std::string& wanted, const std::string& path) {
  const auto line = [](const std::string& text) {
    return text.substr(0, text.find('\n'));
  };
  if (found != wanted) {
    throw ConfigError(
        "[checkpoint] '" + path + "' has the setting " + line(found) + ", expected " +
        line(wanted) +
        " as in this loop; construct the same optimizer, or choose "
        "another directory");
  }
}

// Removes the tensor `name` from a list and returns it, or an undefined tensor.
at::Tensor take(std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(
      tensors.begin(), tensors.end(),
      [&](const NamedTensor& entry) { return entry.name == name; });
  if (found == tensors.end()) {
    return {};
  }
  const at::Tensor tensor = found->tensor;
  tensors.erase(found);
  return tensor;
}

}  // namespace

Checkpoint::Checkpoint(
    std::string directory, std::vector<NamedTensor> module,
    torch::optim::Optimizer& optimizer, Communicator& comm, const KeptCheckpoints& kept)
    : directory_(std::move(directory)),
      module_(std::move(module)),
      infinite_buffers_(infinite_buffers(module_)),
      optimizer_(optimizer),
      comm_(comm),
      kept_(kept) {
  // Checks the class and the parameters.
  optimizer_tensors(optimizer_, module_);
}

void Checkpoint::set_scheduler(torch::optim::LRScheduler& scheduler) {
  scheduler_ = &scheduler;
}

CheckpointContent Checkpoint::content(const Position& position) {
  CheckpointContent content;
  content.state.model = module_;
  content.state.optimizer = optimizer_tensors(optimizer_, module_);
  if (scheduler_ != nullptr) {
    content.state.optimizer.push_back(
        {kSchedulerSteps,
         at::full({}, static_cast<int64_t>(StepCount::of(*scheduler_)), at::kLong)});
  }
  content.position = position;
  content.config = config_of(optimizer_);
  content.infinite_buffers = infinite_buffers_;
  return content;
}

void Checkpoint::save(const Position& position) {
  const auto generators = comm_.stack(generator_state(), "generators");
  comm_.on_rank_0(
      [&] {
        auto whole = content(position);
        whole.state.optimizer.push_back({kGenerators, generators});
        return save_checkpoint(directory_, whole, kept_);
      },
      "save");
}

bool Checkpoint::resume(Position& position) {
  const auto path =
      comm_.on_rank_0([&] { return newest_whole_checkpoint(directory_); }, "resume");
  if (path.empty()) {
    return false;
  }
  load(path, position);
  if (comm_.rank() == 0) {
    log_info("resuming from " + path + " at step " + std::to_string(position.step));
  }
  return true;
}

void Checkpoint::load(const std::string& path, Position& position) {
  auto read = read_checkpoint(path, comm_);
  check_config(read.config, config_of(optimizer_), path);
  check_fits("checkpoint", path, read.state.model, module_, Fit::exact);
  auto& rest = read.state.optimizer;
  const auto generators = take(rest, kGenerators);
  const auto steps = take(rest, kSchedulerSteps);
  if (steps.defined() != (scheduler_ != nullptr)) {
    throw ConfigError(
        "[checkpoint] '" + path + "' has " + (steps.defined() ? "a" : "no") +
        " scheduler, expected " + (steps.defined() ? "none" : "one") +
        " as in this loop; " + (steps.defined() ? "call" : "remove") +
        " set_scheduler(), or choose another directory");
  }
  const auto update_optimizer = read_optimizer(optimizer_, module_, rest, path);

  copy_values(read.state.model, module_);
  update_optimizer();
  if (scheduler_ != nullptr) {
    StepCount::of(*scheduler_) = static_cast<unsigned>(steps.item<int64_t>());
  }
  if (generators.defined() && comm_.rank() < generators.size(0)) {
    // LibTorch 2.15 reads the start of the storage, not of the view.
    set_generator_state(generators[comm_.rank()].clone());
  }
  position = read.position;
}

}  // namespace tandem
