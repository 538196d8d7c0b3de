#include "tandem/checkpoint/loop_checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <algorithm>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/checkpoint/checkpoint_shards.h"
#include "tandem/checkpoint/loop_share.h"
#include "tandem/checkpoint/optimizer_tensors.h"
#include "tandem/comm/exchange.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/parallel/ddp/sharded_optimizer.h"

namespace tandem {

namespace {

constexpr const char* kGenerators = "generators";
constexpr const char* kSchedulerSteps = "scheduler/step_count";
constexpr const char* kAdded = "added/";

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

void append(std::vector<NamedTensor>& list, const std::vector<NamedTensor>& more) {
  list.insert(list.end(), more.begin(), more.end());
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

// Removes the tensors of add_state() from a list and returns them.
std::vector<NamedTensor> take_added(std::vector<NamedTensor>& tensors) {
  const auto rest = std::stable_partition(
      tensors.begin(), tensors.end(),
      [](const NamedTensor& entry) { return entry.name.rfind(kAdded, 0) != 0; });
  std::vector<NamedTensor> added(rest, tensors.end());
  tensors.erase(rest, tensors.end());
  return added;
}

std::unique_ptr<LoopShare> share_of(
    const std::vector<NamedTensor>& module, torch::optim::Optimizer& optimizer) {
  const auto* const sharded = dynamic_cast<ShardedOptimizerBase*>(&optimizer);
  return sharded == nullptr || sharded->ddp().shard() == Sharding::none
             ? nullptr
             : std::make_unique<LoopShare>(module, sharded->ddp());
}

}  // namespace

Checkpoint::Checkpoint(
    std::string directory, std::vector<NamedTensor> module,
    torch::optim::Optimizer& optimizer, Communicator& comm, const KeptCheckpoints& kept)
    : directory_(std::move(directory)),
      module_(std::move(module)),
      infinite_buffers_(infinite_buffers(module_)),
      optimizer_(optimizer),
      share_(share_of(module_, optimizer)),
      comm_(comm),
      kept_(kept) {
  // Checks the class and the parameters.
  optimizer_tensors(optimizer_, optimized());
}

Checkpoint::~Checkpoint() = default;

Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

const std::vector<NamedTensor>& Checkpoint::optimized() const {
  return share_ ? share_->own_parameters() : module_;
}

void Checkpoint::set_scheduler(torch::optim::LRScheduler& scheduler) {
  scheduler_ = &scheduler;
}

void Checkpoint::add_state(const std::vector<NamedTensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    added_.push_back({kAdded + name, tensor});
  }
}

// Returns the state that all ranks have.
std::vector<NamedTensor> Checkpoint::common_state(const at::Tensor& generators) {
  auto state = added_;
  state.push_back({kGenerators, generators});
  if (scheduler_ != nullptr) {
    state.push_back(
        {kSchedulerSteps,
         at::full({}, static_cast<int64_t>(StepCount::of(*scheduler_)), at::kLong)});
  }
  return state;
}

// Returns a content without tensors.
CheckpointContent Checkpoint::content(const Position& position) {
  CheckpointContent content;
  content.position = position;
  content.config = config_of(optimizer_);
  content.infinite_buffers = infinite_buffers_;
  return content;
}

void Checkpoint::save(const Position& position) {
  const auto generators = comm_.stack(generator_state(), "generators");
  if (share_) {
    save_shares(position, generators);
  } else {
    save_whole(position, generators);
  }
}

void Checkpoint::save_whole(const Position& position, const at::Tensor& generators) {
  comm_.on_rank_0(
      [&] {
        auto whole = content(position);
        whole.state = {module_, optimizer_tensors(optimizer_, module_)};
        append(whole.state.optimizer, common_state(generators));
        return save_checkpoint(directory_, whole, kept_);
      },
      "save");
}

void Checkpoint::save_shares(const Position& position, const at::Tensor& generators) {
  comm_.on_rank_0(
      [&] {
        make_directories(directory_);
        return "";
      },
      "save");
  const auto place = find_shared_directory(directory_, comm_);
  const auto writers = share_->writers(place.ranks);
  auto mine = content(position);
  mine.state = share_->collect(optimizer_tensors(optimizer_, optimized()), writers);
  if (comm_.rank() == 0) {
    append(mine.state.optimizer, common_state(generators));
  }
  const auto at = std::find(writers.begin(), writers.end(), comm_.rank());
  const CheckpointShare share{
      static_cast<int>(at - writers.begin()), static_cast<int>(writers.size()),
      share_->divides_model(), true, place.number};
  try {
    on_all_ranks(
        [&] {
          if (at != writers.end()) {
            save_share(place.path, mine, share);
          }
        },
        "save", comm_);
  } catch (const DataError&) {
    if (comm_.rank() == 0) {
      remove_all(unfinished_path(place.path, place.number));
    }
    throw;
  }
  comm_.on_rank_0(
      [&] {
        return complete_checkpoint(
            place.path, content(position), share, tensor_names(module_), kept_);
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
  TrainingState found;
  const auto read = visit_checkpoint(
      path, comm_,
      [&](const CheckpointContent& whole) {
        check_config(whole.config, config_of(optimizer_), path);
        check_fits("checkpoint", path, whole.state.model, module_, Fit::exact);
      },
      [&](bool of_model, const NamedTensor& tensor) {
        auto& list = of_model ? found.model : found.optimizer;
        if (share_) {
          append(
              list,
              of_model ? share_->part_of_model(tensor) : share_->part_of_state(tensor));
        } else {
          list.push_back(tensor);
        }
      });
  auto& rest = found.optimizer;
  const auto added = take_added(rest);
  check_fits("checkpoint", path, added, added_, Fit::exact);
  const auto generators = take(rest, kGenerators);
  const auto steps = take(rest, kSchedulerSteps);
  if (steps.defined() != (scheduler_ != nullptr)) {
    throw ConfigError(
        "[checkpoint] '" + path + "' has " + (steps.defined() ? "a" : "no") +
        " scheduler, expected " + (steps.defined() ? "none" : "one") +
        " as in this loop; " + (steps.defined() ? "call" : "remove") +
        " set_scheduler(), or choose another directory");
  }
  const auto update_optimizer = read_optimizer(optimizer_, optimized(), rest, path);

  if (share_) {
    share_->load_model(found.model);
  } else {
    copy_values(found.model, module_);
  }
  copy_values(added, added_);
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
