#include "tandem/exec/api/compile.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <map>
#include <string>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/core/autograd_node.h"
#include "tandem/exec/compiled/onednn_library.h"
#include "tandem/exec/compiled/program/image_planner.h"
#include "tandem/exec/program/program_pool.h"
#include "tandem/exec/program/saved_state.h"

namespace tandem {

namespace {

namespace autograd = torch::autograd;

// A program whose results are the output and the gradients of the inputs of backward,
// and which returns to its pool.
class Flight {
 public:
  explicit Flight(std::shared_ptr<ProgramPool> pool)
      : pool_(std::move(pool)), program_(pool_->take()) {}
  ~Flight() {
    pool_->give_back(std::move(program_));
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  Program& program() const {
    return *program_;
  }

 private:
  std::shared_ptr<ProgramPool> pool_;
  std::unique_ptr<Program> program_;
};

// Backward of a compiled function.
class BackwardNode : public autograd::Node {
 public:
  BackwardNode(std::unique_ptr<Flight> flight, size_t gradients)
      : flight_(std::move(flight)), gradients_(gradients) {}

  autograd::variable_list apply(autograd::variable_list&& output_gradients) override {
    if (flight_ == nullptr) {
      throw Error(
          "[compile] backward ran twice through one output; call the compiled function "
          "again, or net->forward()");
    }
    if (c10::GradMode::is_enabled()) {
      throw Error(
          "[compile] second derivatives are not compiled; call net->forward() instead");
    }
    if (!output_gradients[0].defined()) {
      return autograd::variable_list(gradients_);
    }
    const std::unique_ptr<Flight> flight = std::move(flight_);
    flight->program().backward(
        output_gradients[0].contiguous(), [](size_t) {}, nullptr);
    autograd::variable_list gradients;
    for (size_t i = 0; i < gradients_; ++i) {
      gradients.push_back(flight->program().take_result(1 + i));
    }
    return gradients;
  }

  std::string name() const override {
    return "CompiledBackward";
  }

 private:
  std::unique_ptr<Flight> flight_;
  size_t gradients_;
};

}  // namespace

class CompiledFunction::State {
 public:
  explicit State(CompilableFunction function)
      : function_(std::move(function)),
        parameters_(tensors_of(function_.parameters)),
        buffers_(tensors_of(function_.buffers)) {}

  at::Tensor call(const at::Tensor& original) {
    const at::Tensor input = original.contiguous();
    forget_moved_tensors();
    const auto pool = obstacle_.empty() ? find_pool(input) : nullptr;
    if (pool == nullptr) {
      return function_.forward(original);
    }
    auto flight = std::make_unique<Flight>(pool);
    // The caller may change parameters in ways that LibTorch does not count.
    flight->program().forward({input}, {}, ++version_, nullptr);
    // Backward may need the output, which the caller may change.
    at::Tensor output = flight->program().result(0).clone();
    if (needs_backward(input)) {
      const auto inputs = differentiated(input);
      const NodeOwner node = make_node<BackwardNode>(std::move(flight), inputs.size());
      node->set_next_edges(autograd::collect_next_edges(inputs));
      autograd::set_history(output, node);
    }
    return output;
  }

  void prepare(const at::Tensor& example) {
    forget_moved_tensors();
    static_cast<void>(find_pool(example.contiguous()));
  }

  const std::string& obstacle() const {
    return obstacle_;
  }

 private:
  // Training mode, whether backward follows, whether the input needs a gradient, which
  // parameters do, and dtype and sizes of the input.
  using Key = std::tuple<
      bool, bool, bool, std::vector<bool>, at::ScalarType, std::vector<int64_t>>;

  bool needs_backward(const at::Tensor& input) const {
    return c10::GradMode::is_enabled() && !differentiated(input).empty();
  }

  // Returns the tensors whose gradients backward computes.
  autograd::variable_list differentiated(const at::Tensor& input) const {
    autograd::variable_list tensors;
    for (const auto& parameter : parameters_) {
      if (parameter.requires_grad()) {
        tensors.push_back(parameter);
      }
    }
    if (input.requires_grad()) {
      tensors.push_back(input);
    }
    return tensors;
  }

  // Recordings contain addresses, which change if the module is moved or a tensor is
  // replaced.
  void forget_moved_tensors() {
    std::vector<const void*> now;
    for (const auto* tensors : {&parameters_, &buffers_}) {
      for (const auto& tensor : *tensors) {
        now.push_back(tensor.data_ptr());
      }
    }
    if (now != addresses_) {
      addresses_ = std::move(now);
      pools_.clear();
    }
  }

  std::shared_ptr<ProgramPool> find_pool(const at::Tensor& input) {
    std::vector<bool> trained;
    for (const auto& parameter : parameters_) {
      trained.push_back(parameter.requires_grad());
    }
    const Key key{
        function_.is_training == nullptr || function_.is_training(),
        needs_backward(input),
        input.requires_grad(),
        trained,
        input.scalar_type(),
        input.sizes().vec()};
    if (const auto found = pools_.find(key); found != pools_.end()) {
      return found->second;
    }
    if (pools_.size() == kMostRecordings) {
      if (!std::exchange(warned_, true)) {
        log_info(fmt::format(
            "compile: batches have more than {} sizes; further sizes run "
            "net->forward()",
            kMostRecordings));
      }
      return nullptr;
    }
    if (CallListener::current() != nullptr) {
      run_call_by_call("each rank has only a part of its parameters");
      return nullptr;
    }
    CallRecorder recorder(RandomCalls::repeat);
    auto step = record(input, recorder);
    if (!recorder.obstacle().empty()) {
      run_call_by_call(recorder.obstacle());
      return nullptr;
    }
    return pools_
        .emplace(key, std::make_shared<ProgramPool>(std::move(step), planner_maker()))
        .first->second;
  }

  void run_call_by_call(const std::string& reason) {
    obstacle_ = reason;
    log_info("compile: the network runs call by call, because " + reason);
  }

  MakePlanner planner_maker() const {
    bool has_kernels = onednn_obstacle().empty();
    for (const auto& parameter : parameters_) {
      has_kernels = has_kernels && parameter.is_cpu();
    }
    return has_kernels ? &plan_image_kernels : &plan_plain_calls;
  }

  // Records forward and backward, without effects on parameters, buffers, gradients and
  // LibTorch's generator.
  RecordedStep record(const at::Tensor& original, CallRecorder& recorder) {
    const bool backward = needs_backward(original);
    const auto input = original.detach().requires_grad_(original.requires_grad());
    SavedState saved(/*draws=*/true);
    for (const auto* tensors : {&parameters_, &buffers_}) {
      for (const auto& tensor : *tensors) {
        recorder.add_fixed(tensor);
        saved.save(tensor);
      }
    }
    RecordedStep step;
    step.inputs = {recorder.add_input(input)};
    record_calls(input, backward, recorder, step);
    step.recording = recorder.finish();
    return step;
  }

  void record_calls(
      const at::Tensor& input, bool backward, CallRecorder& recorder,
      RecordedStep& step) {
    at::Tensor output;
    {
      const CallRecorder::Scope scope(recorder);
      output = function_.forward(input);
    }
    recorder.end_forward();
    step.results = {recorder.result(output)};
    if (!backward) {
      return;
    }
    const auto gradient = at::zeros_like(output).contiguous();
    step.initial_gradient = recorder.add_input(gradient);
    autograd::variable_list gradients;
    {
      const CallRecorder::Scope scope(recorder);
      gradients = autograd::grad(
          {output}, differentiated(input), {gradient}, c10::nullopt, false,
          /*allow_unused=*/true);
    }
    for (const auto& found : gradients) {
      step.results.push_back(found.defined() ? recorder.result(found) : kNoTensor);
    }
  }

  CompilableFunction function_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
  std::vector<const void*> addresses_;
  std::map<Key, std::shared_ptr<ProgramPool>> pools_;
  std::string obstacle_;
  bool warned_ = false;
  int64_t version_ = 0;
};

CompiledFunction::CompiledFunction(CompilableFunction function)
    : state_(std::make_shared<State>(std::move(function))) {}

at::Tensor CompiledFunction::operator()(const at::Tensor& input) const {
  return state_->call(input);
}

void CompiledFunction::prepare(const at::Tensor& example) const {
  state_->prepare(example);
}

const std::string& CompiledFunction::obstacle() const {
  return state_->obstacle();
}

}  // namespace tandem
