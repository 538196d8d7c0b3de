#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/exec/program/program.h"
#include "tandem/exec/program/program_executor.h"
#include "tandem/exec/program/saved_state.h"

namespace tandem {

namespace {

class RecordingSink : public GradientSink {
 public:
  explicit RecordingSink(CallRecorder& recorder) : recorder_(recorder) {}

  void gradient_ready(size_t slot) override {
    recorder_.gradient_ready(slot);
  }

 private:
  CallRecorder& recorder_;
};

// Indices in RecordedStep::results.
constexpr size_t kOutput = 0;
constexpr size_t kSums = 1;
constexpr size_t kInputGradient = 2;

// A slot that no strategy uses.
constexpr int kRecordingSlot = -1;

class ProgramExecutor : public StageExecutor {
 public:
  ProgramExecutor(
      Model& model, ModelArenas& arenas, const StageOptions& options,
      MakePlanner make_planner)
      : model_(model),
        arenas_(arenas),
        options_(options),
        make_planner_(std::move(make_planner)),
        eager_(make_eager_executor(model, arenas, options)) {}

  StageResult forward(
      int slot, const Batch& batch, const StepContext& context) override {
    ProgramPool* pool = is_eager_ ? nullptr : find_pool(batch, context);
    if (pool == nullptr) {
      return eager_->forward(slot, batch, context);
    }
    auto program = pool->take();
    if (options_.measure) {
      program->measure();
    }
    const TraceSpan span(context.trace, "forward", "forward");
    program->forward(
        {batch.inputs.contiguous(), batch.targets.contiguous()},
        samples_of(batch, context), parameters_version_, context.trace);
    StageResult result;
    result.output = program->result(kOutput);
    if (options_.last) {
      auto sums = program->result(kSums);
      sums[2].fill_(batch.targets.numel() - batch.ignored);
      result.sums = StepSums(sums);
    }
    if (context.training) {
      in_flight_[slot] = {pool, std::move(program)};
    } else {
      pool->give_back(std::move(program));
    }
    return result;
  }

  at::Tensor backward(
      int slot, const at::Tensor& grad_output, const StepContext& context,
      GradientSink& sink) override {
    const auto found = in_flight_.find(slot);
    if (found == in_flight_.end()) {
      return eager_->backward(slot, grad_output, context, sink);
    }
    auto [pool, program] = std::move(found->second);
    in_flight_.erase(found);
    const TraceSpan span(context.trace, "backward", "backward");
    arenas_.attach_gradients();
    program->backward(
        options_.last ? initial_gradient(context) : grad_output.contiguous(),
        [&](size_t ready) { sink.gradient_ready(ready); }, context.trace);
    auto gradient = program->result(kInputGradient);
    pool->give_back(std::move(program));
    return gradient;
  }

  void parameters_changed(const ArenaRange&) override {
    ++parameters_version_;
  }

  void zero_gradients() override {
    eager_->zero_gradients();
  }

  int64_t kept_bytes() const override {
    int64_t bytes = eager_->kept_bytes();
    for (const auto& [slot, flight] : in_flight_) {
      bytes += flight.program->kept_bytes();
    }
    return bytes;
  }

  ExecutorKind kind() const override {
    return ExecutorKind::compiled;
  }

  RecordingCost recording_cost() const override {
    return cost_;
  }

  std::string program_table() const override {
    for (const auto& [key, pool] : pools_) {
      const bool training = std::get<0>(key);
      if (training && pool.idle() != nullptr) {
        return pool.idle()->table();
      }
    }
    return "";
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct InFlight {
    ProgramPool* pool;
    std::unique_ptr<Program> program;
  };
  // Mode, dtype and sizes of the batch, and sizes of the targets.
  using Key =
      std::tuple<bool, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;

  at::Tensor initial_gradient(const StepContext& context) const {
    return at::full({}, context.loss_weight * context.loss_scale, at::kFloat);
  }

  // Returns null if the calls of the model cannot be repeated.
  ProgramPool* find_pool(const Batch& batch, const StepContext& context) {
    const Key key{
        context.training, batch.inputs.scalar_type(), batch.inputs.sizes().vec(),
        batch.targets.sizes().vec()};
    if (const auto found = pools_.find(key); found != pools_.end()) {
      return &found->second;
    }
    if (pools_.size() == kMostRecordings) {
      run_eager(fmt::format("the batches have more than {} sizes", kMostRecordings));
      return nullptr;
    }
    const auto start = Clock::now();
    // Graphs compute random numbers from sample positions; other models draw from
    // LibTorch's generator.
    CallRecorder recorder(has_no_graph() ? RandomCalls::repeat : RandomCalls::refuse);
    RecordedStep recorded = record(batch, context, recorder);
    if (!recorder.obstacle().empty()) {
      run_eager(recorder.obstacle());
      return nullptr;
    }
    const size_t operators = recorded.recording.calls.size();
    ProgramPool& pool =
        pools_.try_emplace(key, std::move(recorded), make_planner_).first->second;
    pool.give_back(pool.take());
    const std::chrono::duration<double> time = Clock::now() - start;
    cost_.seconds += time.count();
    if (++cost_.steps == 1) {
      log_info(fmt::format(
          "executor compiled: recorded {} operators of a step in {:.1f} s; each other "
          "batch size, and evaluation, is also recorded once",
          operators, time.count()));
    }
    return &pool;
  }

  void run_eager(const std::string& reason) {
    is_eager_ = true;
    log_info(fmt::format(
        "executor compiled: the model runs operator by operator like eager, because {}",
        reason));
  }

  void add_state(CallRecorder& recorder) {
    for (const auto& tensor : arenas_.tensors()) {
      recorder.add_fixed(tensor);
      if (tensor.grad().defined()) {
        recorder.add_fixed(tensor.grad());
      }
    }
    for (const auto& named : arenas_.state()) {
      recorder.add_fixed(named.tensor);
    }
    if (const Graph* const graph = model_.graph()) {
      for (const auto& value : graph->values) {
        if (value.tensor.defined()) {
          recorder.add_fixed(value.tensor);
        }
      }
    }
  }

  // Runs a step by the eager executor, without effects on gradients and buffers.
  RecordedStep record(
      const Batch& original, const StepContext& context, CallRecorder& recorder) {
    Batch batch = original;
    batch.inputs = batch.inputs.contiguous();
    batch.targets = batch.targets.contiguous();
    StepContext untraced = context;
    untraced.trace = nullptr;
    arenas_.attach_gradients();
    add_state(recorder);
    RecordedStep step;
    step.inputs = {recorder.add_input(batch.inputs), recorder.add_input(batch.targets)};
    step.results.assign(3, kNoTensor);
    SavedState saved(/*draws=*/has_no_graph());
    save_state(saved);
    record_calls(batch, untraced, recorder, step);
    step.recording = recorder.finish();
    return step;
  }

  bool has_no_graph() const {
    return model_.graph() == nullptr;
  }

  // Copies the state that a recording changes.
  void save_state(SavedState& saved) {
    for (const auto& parameter : arenas_.tensors()) {
      if (parameter.grad().defined()) {
        saved.save(parameter.grad());
      }
      // A graph that changes a parameter in the forward pass is refused.
      if (has_no_graph()) {
        saved.save(parameter);
      }
    }
    for (size_t slot = 0; slot < arenas_.buffers().layout().slots().size(); ++slot) {
      saved.save(arenas_.buffers().view(slot));
    }
  }

  void record_calls(
      const Batch& batch, const StepContext& context, CallRecorder& recorder,
      RecordedStep& step) {
    StageResult result;
    {
      const CallRecorder::Scope scope(recorder);
      result = eager_->forward(kRecordingSlot, batch, context);
    }
    recorder.end_forward();
    step.results[kOutput] = recorder.result(result.output);
    if (options_.last) {
      step.results[kSums] = recorder.result(result.sums.tensor());
    }
    if (!context.training) {
      return;
    }
    const auto gradient = options_.last ? initial_gradient(context)
                                        : at::zeros_like(result.output).contiguous();
    step.initial_gradient = recorder.add_input(gradient);
    RecordingSink sink(recorder);
    at::Tensor input_gradient;
    {
      const CallRecorder::Scope scope(recorder);
      input_gradient = eager_->backward(kRecordingSlot, gradient, context, sink);
    }
    if (input_gradient.defined()) {
      step.results[kInputGradient] = recorder.result(input_gradient);
    }
  }

  Model& model_;
  ModelArenas& arenas_;
  StageOptions options_;
  MakePlanner make_planner_;
  std::unique_ptr<StageExecutor> eager_;
  // True after the model had calls that cannot be repeated.
  bool is_eager_ = false;
  std::map<Key, ProgramPool> pools_;
  RecordingCost cost_;
  std::map<int, InFlight> in_flight_;
  int64_t parameters_version_ = 0;
};

}  // namespace

std::unique_ptr<StageExecutor> make_program_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options,
    MakePlanner make_planner) {
  return std::make_unique<ProgramExecutor>(
      model, arenas, options, std::move(make_planner));
}

}  // namespace tandem
