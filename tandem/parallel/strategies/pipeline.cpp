#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/parallel/pipeline/grid.h"
#include "tandem/parallel/pipeline/schedule.h"
#include "tandem/parallel/pipeline/stage_link.h"
#include "tandem/parallel/reduce/grad_reducer.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tandem/parallel/strategy.h"
#include "tandem/parallel/update/arena_update.h"
#include "tandem/parallel/update/update_rule.h"

namespace tandem {

namespace {

// Pipeline parallelism on a grid of stages x replicas. Activations are sent from stage
// to stage; gradients are reduced over the ranks with the same stage. Backward ends at
// the first stage with trainable parameters.
class Pipeline : public Strategy {
 public:
  Pipeline(const StrategyOptions& options, const StrategyParts& parts)
      : Strategy(options, parts),
        grid_(make_grid(
            options.stages, options.replicas, parts.comm.rank(), parts.comm.size())),
        pipeline_(parts.comm.split(grid_.replica)),
        replicas_(parts.comm.split(grid_.stage)),
        link_(*pipeline_, parts.arenas.device()),
        update_(options.shard, *replicas_, parts),
        reducer_(
            *replicas_, parts.arenas.gradients(), options.sync == SyncMode::overlap, {},
            update_.sum_goes_to()) {}

  void start() override {
    start_alike(*replicas_, parts_.arenas);
    update_.start();
    notify_executor(parts_);
  }

  StepSums train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) override {
    start_gradients(parts_, micro_batches, context.trace);
    const auto count = static_cast<int64_t>(micro_batches.size());
    const StepContext weighted =
        with_loss_weight(parts_, micro_batches, LossMean::global_batch, context);
    if (micro_batches.empty()) {
      reducer_.begin(context.trace);
    }
    sums_ = {};
    for (const auto& task :
         plan_stage(options_.pipeline_schedule, grid_.stages, grid_.stage, count)) {
      if (task.kind == StageTask::Kind::forward) {
        forward(task.micro_batch, micro_batches, weighted);
      } else {
        backward(task.micro_batch, count, weighted);
      }
    }
    link_.finish();
    reducer_.finish();
    update(context);
    return sums_;
  }

  StepSums evaluate_batch(const Batch* batch, const StepContext& context) override {
    if (batch == nullptr) {
      return {};
    }
    const auto result =
        parts_.executor.forward(0, input_of(0, *batch, context), context);
    if (link_.last()) {
      return result.sums;
    }
    link_.send_activations(0, result.output, false);
    link_.finish();
    return {};
  }

  DataShard data_shard() const override {
    return {grid_.replicas, grid_.replica, link_.last()};
  }

  Consistency consistency() const override {
    return Consistency::sharded;
  }

  void end_epoch(bool last) override {
    if (last) {
      report(measurements());
    }
  }

  void before_evaluation() override {
    sync_buffers(*replicas_, parts_.arenas, options_.buffers);
  }

  TrainingState collect_state() override {
    before_evaluation();
    auto state = local_state(parts_.arenas, parts_.optimizer);
    // Rank 0 is a stage of the first pipeline.
    if (grid_.replica == 0) {
      state.model = gather_tensors(*pipeline_, std::move(state.model));
      if (!divides_state()) {
        state.optimizer = gather_tensors(*pipeline_, std::move(state.optimizer));
      }
    }
    return state;
  }

  bool divides_state() const override {
    return update_.divides_state();
  }

  void visit_state(const StateVisitor& visit, bool may_visit) override {
    if (divides_state()) {
      // The model is collected at rank 0, the optimizer's state stays divided.
      const auto visit_optimizer = [&](const TrainingState& piece) {
        visit({{}, piece.optimizer, {}});
      };
      update_.visit_state(visit_optimizer, may_visit);
      auto state = collect_state();
      state.optimizer.clear();
      if (parts_.comm.rank() == 0) {
        visit(state);
      }
    } else {
      Strategy::visit_state(visit, may_visit);
    }
  }

  TrainingState state_to_load() override {
    return update_.state_to_load();
  }

  Communicator* replicas() override {
    return replicas_.get();
  }

  CommStats own_comm_stats() const override {
    CommStats sum = pipeline_->stats();
    return sum += replicas_->stats();
  }

  std::optional<double> gradient_norm() override {
    return (norm_.defined() ? norm_ : norm_of_all_stages()).item<double>();
  }

  std::map<std::string, std::vector<double>> measurements() override {
    int64_t parameters = 0;
    for (const auto& tensor : parts_.arenas.tensors()) {
      parameters += tensor.numel();
    }
    return {
        {"stage_parameters", of_stages(parameters)},
        {"stage_most_in_flight", of_stages(most_in_flight_)},
        {"stage_peak_activation_bytes", of_stages(peak_bytes_)}};
  }

 private:
  // Returns the executor's slot for a micro-batch. Micro-batches in flight are
  // consecutive, so their slots differ.
  int slot_of(int64_t micro_batch, int64_t count) const {
    return static_cast<int>(
        micro_batch %
        most_in_flight(options_.pipeline_schedule, grid_.stages, grid_.stage, count));
  }

  Batch input_of(int64_t micro_batch, const Batch& batch, const StepContext& context) {
    Batch input = batch;
    if (!link_.first()) {
      input.inputs =
          link_.receive_activations(micro_batch, batch.count(), context.training);
    }
    return input;
  }

  void forward(
      int64_t micro_batch, const std::vector<Batch>& batches,
      const StepContext& context) {
    const auto& batch = batches[static_cast<size_t>(micro_batch)];
    const int slot = slot_of(micro_batch, static_cast<int64_t>(batches.size()));
    const auto result =
        parts_.executor.forward(slot, input_of(micro_batch, batch, context), context);
    sums_ += result.sums;
    if (!link_.last()) {
      link_.send_activations(micro_batch, result.output, true);
    }
    most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
    peak_bytes_ = std::max(peak_bytes_, parts_.executor.kept_bytes());
  }

  void backward(int64_t micro_batch, int64_t count, const StepContext& context) {
    if (grid_.stage < parts_.first_trained_stage) {
      // Waits, because the executor will reuse the memory of the activations.
      link_.wait_for_activations(micro_batch);
      --in_flight_;
      return;
    }
    const bool last_of_step = micro_batch + 1 == count;
    if (last_of_step) {
      reducer_.begin(context.trace);
    }
    GradientSink& sink = last_of_step ? static_cast<GradientSink&>(reducer_) : no_sink_;
    const auto gradient =
        link_.last() ? at::Tensor() : link_.receive_gradient(micro_batch);
    const auto input_gradient =
        parts_.executor.backward(slot_of(micro_batch, count), gradient, context, sink);
    --in_flight_;
    if (grid_.stage > parts_.first_trained_stage) {
      link_.send_gradient(micro_batch, input_gradient);
    }
  }

  void update(const StepContext& context) {
    const TraceSpan span(context.trace, "update", "update");
    StepScalars step = scalars_of(context);
    norm_ =
        clip(options_, parts_.arenas, step, [this] { return norm_of_all_stages(); });
    update_.update(step);
  }

  at::Tensor norm_of_all_stages() {
    auto squares = update_.gradient_squares().view({1});
    pipeline_->all_reduce(squares, ReduceOp::sum, "gradient norm")->wait();
    return squares.sqrt()[0];
  }

  // Returns the maximum of `mine` over replicas, for each stage.
  std::vector<double> of_stages(int64_t mine) {
    auto largest = at::full({1}, static_cast<double>(mine), at::kDouble);
    replicas_->all_reduce(largest, ReduceOp::max, "measurements")->wait();
    const auto all = pipeline_->stack(largest, "measurements");
    return {all.data_ptr<double>(), all.data_ptr<double>() + grid_.stages};
  }

  void report(std::map<std::string, std::vector<double>> measured) const {
    if (parts_.comm.rank() != 0) {
      return;
    }
    for (size_t stage = 0; stage < static_cast<size_t>(grid_.stages); ++stage) {
      log_info(fmt::format(
          "stage {}: {}, activations of at most {} in flight, {:.3f} MB", stage,
          counted(
              static_cast<int64_t>(measured["stage_parameters"][stage]), "parameter"),
          counted(
              static_cast<int64_t>(measured["stage_most_in_flight"][stage]),
              "micro-batch", "micro-batches"),
          measured["stage_peak_activation_bytes"][stage] / 1e6));
    }
  }

  Grid grid_;
  // The group of all stages of this rank's replica, and the group of all replicas of
  // its stage.
  std::unique_ptr<Communicator> pipeline_;
  std::unique_ptr<Communicator> replicas_;
  StageLink link_;
  UpdateRule update_;
  GradReducer reducer_;
  // Norm that clipping computed in the last step; undefined without clipping.
  at::Tensor norm_;
  NoSink no_sink_;
  StepSums sums_;
  int64_t in_flight_ = 0;
  int64_t most_in_flight_ = 0;
  int64_t peak_bytes_ = 0;
};

std::unique_ptr<Strategy> make_pipeline(
    const StrategyOptions& options, const StrategyParts& parts) {
  if (options.shard_group != StrategyOptions::kAllRanks) {
    throw ConfigError(
        "[parallel] --shard-group is for strategy data_parallel, because a stage's "
        "replicas already divide its values; leave it out");
  }
  if (options.shard == Sharding::parameters) {
    throw ConfigError(
        "[parallel] --shard parameters is for strategy data_parallel, because stages "
        "of "
        "a pipeline divide the parameters already; use --shard gradients");
  }
  return std::make_unique<Pipeline>(options, parts);
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(
    KindTag<StrategyKind::pipeline>, const StrategyOptions& options,
    const StrategyParts& parts) {
  return make_pipeline(options, parts);
}

std::unique_ptr<Strategy> make_strategy(
    KindTag<StrategyKind::model_parallel>, const StrategyOptions& options,
    const StrategyParts& parts) {
  return make_pipeline(options, parts);
}

}  // namespace tandem
