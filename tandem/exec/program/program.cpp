#include "tandem/exec/program/program.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/graph/named_errors.h"

namespace tandem {

namespace {

class PlainCalls : public CallPlanner {
 public:
  explicit PlainCalls(const Recording& recording) : recording_(recording) {}

  void plan(size_t call, std::vector<Instruction>& program) override {
    program.push_back(instruction_of(recording_.calls[call]));
  }
  void provide(RecordedId, std::vector<Instruction>&) override {}

 private:
  const Recording& recording_;
};

// Returns the sizes of the instruction's first result, such as "32x64"; "" if it has
// none.
std::string sizes_of(const Instruction& instruction, const Recording& recording) {
  std::string text;
  for (const RecordedId id : instruction.writes) {
    if (id == kNoTensor) {
      continue;
    }
    for (const int64_t size : recording.tensors[static_cast<size_t>(id)].sizes) {
      text += (text.empty() ? "" : "x") + std::to_string(size);
    }
    break;
  }
  return text;
}

}  // namespace

std::unique_ptr<CallPlanner> plan_plain_calls(const RecordedStep& step) {
  return std::make_unique<PlainCalls>(step.recording);
}

Program::Program(const RecordedStep& step, std::unique_ptr<CallPlanner> planner)
    : step_(step), planner_(std::move(planner)) {
  const Recording& recording = step.recording;
  std::vector<Instruction> instructions;
  const auto add_steps = [&] {
    for (auto& instruction : instructions) {
      steps_.push_back({std::move(instruction), {}, {}, 0});
    }
    instructions.clear();
  };
  const auto provide_results = [&] {
    for (const RecordedId id : step.results) {
      planner_->provide(id, instructions);
    }
    add_steps();
  };
  const auto end_forward = [&] {
    provide_results();
    forward_steps_ = steps_.size();
  };
  for (size_t call = 0; call < recording.calls.size(); ++call) {
    if (call == recording.forward_calls) {
      end_forward();
    }
    planner_->plan(call, instructions);
    add_steps();
    const auto [begin, end] = recording.ready_after.equal_range(call + 1);
    for (auto ready = begin; ready != end; ++ready) {
      TANDEM_CHECK(!steps_.empty(), "a gradient is ready before any call");
      steps_.back().ready.push_back(ready->second);
    }
  }
  if (!step.has_backward()) {
    end_forward();
  }
  provide_results();
  find_last_uses();
  for (const auto& tensor : recording.tensors) {
    state_.tensors.push_back(tensor.fixed);
  }
}

void Program::find_last_uses() {
  std::set<RecordedId> used(step_.results.begin(), step_.results.end());
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    for (const auto* ids : {&step->instruction.reads, &step->instruction.writes}) {
      for (const RecordedId id : *ids) {
        if (id != kNoTensor &&
            !step_.recording.tensors[static_cast<size_t>(id)].fixed.defined() &&
            used.insert(id).second) {
          step->last_used.push_back(id);
        }
      }
    }
  }
}

void Program::set(RecordedId id, const at::Tensor& tensor) {
  if (id != kNoTensor) {
    state_.tensors[static_cast<size_t>(id)] = tensor;
  }
}

void Program::forward(
    const std::vector<at::Tensor>& inputs, const SampleContext& samples,
    int64_t parameters_version, Trace* trace) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    set(step_.inputs.at(i), inputs[i]);
  }
  state_.samples = samples;
  state_.parameters_version = parameters_version;
  run(0, forward_steps_, {}, trace, "forward");
}

void Program::backward(
    const at::Tensor& initial_gradient, const std::function<void(size_t)>& ready,
    Trace* trace) {
  set(step_.initial_gradient, initial_gradient);
  run(forward_steps_, steps_.size(), ready, trace, "backward");
}

void Program::run(Step& step, const char* category) {
  using Clock = std::chrono::steady_clock;
  const auto start = is_measured_ ? Clock::now() : Clock::time_point();
  with_named_errors(
      [&] { step.instruction.run(state_); },
      [&] {
        return fmt::format("{} fails in {}", layer_of(step.instruction), category);
      });
  if (is_measured_) {
    step.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
}

void Program::run(
    size_t begin, size_t end, const std::function<void(size_t)>& ready, Trace* trace,
    const char* category) {
  const c10::AutoGradMode no_grad(false);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  TraceLaps laps(trace, category);
  for (size_t i = begin; i < end; ++i) {
    Step& step = steps_[i];
    run(step, category);
    for (const RecordedId id : step.last_used) {
      state_.tensors[static_cast<size_t>(id)].reset();
    }
    if (trace != nullptr &&
        (i + 1 == end || steps_[i + 1].instruction.layer != step.instruction.layer)) {
      laps.end(std::string(category) + ' ', layer_of(step.instruction));
    }
    for (const size_t slot : step.ready) {
      ready(slot);
    }
  }
}

const std::string& Program::layer_of(const Instruction& instruction) const {
  static const std::string loss = "loss";
  const std::string& layer = step_.recording.layers[instruction.layer];
  return layer.empty() ? loss : layer;
}

std::string Program::table() const {
  double total = 0;
  for (const Step& step : steps_) {
    total += step.seconds;
  }
  std::string text = fmt::format(
      "{:<9}{:<28}{:<36}{:<24}{:>7}\n", "pass", "layer", "kernel or call", "result",
      "time");
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Instruction& instruction = steps_[i].instruction;
    text += fmt::format(
        "{:<9}{:<28}{:<36}{:<24}{:>7}\n", i < forward_steps_ ? "forward" : "backward",
        layer_of(instruction), instruction.name, sizes_of(instruction, step_.recording),
        total == 0 ? "-" : fmt::format("{:.1f} %", 100 * steps_[i].seconds / total));
  }
  const double mebibytes = static_cast<double>(planner_->kept_bytes()) / (1 << 20);
  return text + fmt::format("Memory of the kernels: {:.1f} MiB\n", mebibytes);
}

at::Tensor Program::result(size_t index) const {
  const RecordedId id = step_.results.at(index);
  return id == kNoTensor ? at::Tensor() : state_.tensors[static_cast<size_t>(id)];
}

at::Tensor Program::take_result(size_t index) {
  const auto& ids = step_.results;
  const RecordedId id = ids.at(index);
  if (id == kNoTensor) {
    return {};
  }
  auto& tensor = state_.tensors[static_cast<size_t>(id)];
  // One tensor can be the gradient of several parameters.
  return std::count(ids.begin(), ids.end(), id) > 1 ? tensor.clone()
                                                    : std::move(tensor);
}

int64_t Program::kept_bytes() const {
  std::map<const void*, int64_t> kept;
  for (size_t i = 0; i < state_.tensors.size(); ++i) {
    const at::Tensor& tensor = state_.tensors[i];
    if (tensor.defined() && !step_.recording.tensors[i].fixed.defined()) {
      const auto& storage = tensor.storage();
      kept[storage.unsafeGetStorageImpl()] = static_cast<int64_t>(storage.nbytes());
    }
  }
  int64_t bytes = planner_->kept_bytes();
  for (const auto& [storage, size] : kept) {
    bytes += size;
  }
  return bytes;
}

}  // namespace tandem
