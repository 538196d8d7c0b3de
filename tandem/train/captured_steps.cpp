#include "tandem/train/captured_steps.h"

#include <ATen/ops/empty_like.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/core/device/device_kernels.h"

namespace tandem {

namespace {

std::vector<int64_t> sizes_of(const std::vector<Batch>& micro_batches) {
  std::vector<int64_t> sizes;
  for (const auto& batch : micro_batches) {
    for (const auto* tensor : {&batch.inputs, &batch.targets}) {
      sizes.push_back(tensor->dim());
      sizes.insert(sizes.end(), tensor->sizes().begin(), tensor->sizes().end());
      sizes.push_back(static_cast<int64_t>(tensor->scalar_type()));
    }
  }
  return sizes;
}

bool is_in_place(const at::Tensor& tensor, const at::Tensor& place) {
  return tensor.device() == place.device() && tensor.data_ptr() == place.data_ptr() &&
         tensor.strides().equals(place.strides());
}

bool are_in_place(const std::vector<Batch>& batches, const std::vector<Batch>& places) {
  for (size_t i = 0; i < batches.size(); ++i) {
    if (!is_in_place(batches[i].inputs, places[i].inputs) ||
        !is_in_place(batches[i].targets, places[i].targets)) {
      return false;
    }
  }
  return true;
}

bool are_on(at::Device device, const std::vector<Batch>& batches) {
  for (const auto& batch : batches) {
    if (batch.inputs.device() != device || batch.targets.device() != device) {
      return false;
    }
  }
  return true;
}

at::Tensor place_for(const at::Tensor& tensor, at::Device device) {
  return at::empty_like(
      tensor, tensor.options().device(device), at::MemoryFormat::Contiguous);
}

}  // namespace

CapturedSteps::CapturedSteps(
    Strategy& strategy, const ModelArenas& arenas, bool wanted,
    std::function<void(const std::string& line)> say)
    : strategy_(strategy), arenas_(arenas), say_(std::move(say)) {
  if (!wanted) {
    return;
  }
  parts_ = dynamic_cast<TwoPartStep*>(&strategy);
  const std::string obstacle =
      parts_ == nullptr ? "this strategy decides things on the host in a step"
                        : parts_->communicator().capture_obstacle();
  if (!obstacle.empty()) {
    give_up(obstacle);
  } else if (arenas.parameters().kernels() == nullptr) {
    give_up("the device " + arenas.device().str() + " cannot capture");
  }
}

void CapturedSteps::give_up(const std::string& reason) {
  parts_ = nullptr;
  last_launched_ = nullptr;
  sizes_.clear();
  say_("executor cudagraph: steps run one by one, not as a graph: " + reason);
}

StepSums CapturedSteps::train_step(
    const std::vector<Batch>& micro_batches, const StepContext& context) {
  Captured* const captured = find(micro_batches, context);
  if (captured == nullptr) {
    return strategy_.train_step(micro_batches, context);
  }
  bring(micro_batches, *captured);
  TwoPartStep& parts = *parts_;
  parts.begin_step(captured->batches, context);
  const bool first = captured->graph == nullptr;
  if (first && !capture(*captured, context)) {
    return parts.finish_step(micro_batches, context);
  }
  // The statistics have the capture as a step.
  launch(*captured, first ? CommStats() : captured->held);
  last_launched_ = captured;
  ++num_launched_;
  // The next launch writes there again.
  return StepSums(captured->sums.tensor().clone());
}

void CapturedSteps::launch(Captured& captured, const CommStats& held) {
  parts_->communicator().launch_graph([&] { captured.graph->launch(); }, held);
}

void CapturedSteps::launch_again() {
  TANDEM_CHECK(last_launched_ != nullptr, "no step was launched as a graph");
  launch(*last_launched_, last_launched_->held);
}

CapturedSteps::Captured* CapturedSteps::find(
    const std::vector<Batch>& micro_batches, const StepContext& context) {
  // What is traced is what the host does in a step.
  if (parts_ == nullptr || micro_batches.empty() || context.trace != nullptr) {
    return nullptr;
  }
  auto sizes = sizes_of(micro_batches);
  if (sizes_.count(sizes) == 0 && sizes_.size() == kMostSizes) {
    if (!std::exchange(said_too_many_, true)) {
      say_(
          "executor cudagraph: steps of further sizes of batches run one by one, after "
          "those of " +
          std::to_string(kMostSizes));
    }
    return nullptr;
  }
  Captured& captured = sizes_[std::move(sizes)];
  return ++captured.times_seen > kStepsBefore ? &captured : nullptr;
}

// A loader on the device fills the same memory in each step: nothing is copied.
void CapturedSteps::bring(const std::vector<Batch>& micro_batches, Captured& to) {
  const at::Device device = arenas_.device();
  if (to.batches.empty()) {
    to.batches = micro_batches;
  }
  if (!to.own && are_on(device, micro_batches) &&
      are_in_place(micro_batches, to.batches)) {
    to.batches = micro_batches;
    return;
  }
  if (!to.own) {
    // A copy into somebody else's memory might overwrite what is still to be copied.
    to.own = true;
    to.graph = nullptr;
    last_launched_ = nullptr;
    for (auto& batch : to.batches) {
      batch.inputs = place_for(batch.inputs, device);
      batch.targets = place_for(batch.targets, device);
    }
  }
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    Batch batch = micro_batches[i];
    batch.inputs = to.batches[i].inputs;
    batch.targets = to.batches[i].targets;
    batch.inputs.copy_(micro_batches[i].inputs);
    batch.targets.copy_(micro_batches[i].targets);
    to.batches[i] = batch;
  }
}

bool CapturedSteps::capture(Captured& of, const StepContext& context) {
  std::string reason;
  const CommStats before = parts_->communicator().stats();
  try {
    of.graph = arenas_.parameters().kernels()->capture(
        [&] { of.sums = parts_->finish_step(of.batches, context); });
    reason = of.graph == nullptr ? "the device cannot capture" : "";
  } catch (const std::exception& error) {
    reason = first_line(error);
  }
  if (!reason.empty()) {
    give_up(reason);
    return false;
  }
  of.held = parts_->communicator().stats() - before;
  of.held.waited_seconds = 0;
  return true;
}

}  // namespace tandem
