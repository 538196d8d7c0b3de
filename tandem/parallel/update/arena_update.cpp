#include "tandem/parallel/update/arena_update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "tandem/core/squares.h"
#include "tandem/parallel/reduce/replicas.h"

namespace tandem {

namespace {

at::Tensor tensor_of(const DoubledSum& sum) {
  return at::tensor({sum.high, sum.low}, at::kDouble);
}

// Returns the total of sums, one per row.
at::Tensor total_of(const at::Tensor& rows) {
  if (!rows.is_cpu()) {
    return rows.sum(0);
  }
  DoubledSum sum;
  const auto* const values = rows.data_ptr<double>();
  for (int64_t i = 0; i < rows.numel(); ++i) {
    sum.add(values[i]);
  }
  return tensor_of(sum);
}

}  // namespace

// Replicas clip by norms that they compute separately, from other parts of the
// gradients, so the bits of a norm must not depend on the order of additions.
at::Tensor squares_of(const Arena& arena, const std::vector<ArenaRange>& ranges) {
  std::vector<at::Tensor> rows;
  for (const auto& range : ranges) {
    const auto slice = arena.slice(range);
    if (!slice.is_cpu()) {
      const auto squares = slice.norm().to(at::kDouble).square();
      rows.push_back(at::stack({squares, at::zeros_like(squares)}));
    } else {
      rows.push_back(tensor_of(squares_in(slice)));
    }
  }
  return rows.empty() ? tensor_of({}) : total_of(at::stack(rows));
}

at::Tensor squares_of_parts(
    Communicator& comm, const Arena& arena, const std::vector<ArenaRange>& own) {
  return total_of(comm.stack(squares_of(arena, own), "gradient norm"));
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  const auto length = norm + 1e-6;
  // fmin() ignores NaN.
  return at::fmin(at::full_like(length, max_norm).div_(length), at::ones_like(length));
}

at::Tensor own_gradient_norm(ModelArenas& arenas) {
  const Arena& gradients = arenas.gradients();
  return squares_of(gradients, gradients.layout().trainable_ranges()).sum().sqrt();
}

at::Tensor clip(
    const StrategyOptions& options, ModelArenas& arenas, StepScalars& step,
    const std::function<at::Tensor()>& norm) {
  if (options.clip_norm <= 0) {
    return {};
  }
  auto before = norm();
  const auto factor = clip_factor(before, options.clip_norm);
  if (factor.is_cpu()) {
    step.gradient_scale = factor.item<double>();
    return before;
  }
  for (const auto& range : arenas.gradients().layout().trainable_ranges()) {
    arenas.gradients().slice(range).mul_(factor);
  }
  return before;
}

void update_all(const StrategyParts& parts, const StepScalars& step) {
  for (const auto& range : parts.arenas.parameters().layout().trainable_ranges()) {
    parts.optimizer.update(range, step);
    parts.executor.parameters_changed(range);
  }
}

void broadcast_state(Communicator& comm, Optimizer& optimizer) {
  for (Arena* arena : optimizer.state()) {
    broadcast_arena(comm, *arena);
  }
}

void start_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches, Trace* trace) {
  const TraceSpan span(trace, "update", "zero gradients");
  if (micro_batches.empty()) {
    parts.arenas.gradients().zero();
  } else {
    parts.executor.zero_gradients();
  }
}

void notify_executor(const StrategyParts& parts) {
  for (const auto& range : parts.arenas.parameters().layout().ranges()) {
    parts.executor.parameters_changed(range);
  }
}

int64_t count_samples(const std::vector<Batch>& micro_batches) {
  int64_t count = 0;
  for (const auto& batch : micro_batches) {
    count += batch.count();
  }
  return count;
}

int64_t count_in_loss(const std::vector<Batch>& micro_batches) {
  int64_t count = 0;
  for (const auto& batch : micro_batches) {
    const auto& targets = batch.targets;
    const bool classes = !targets.is_floating_point();
    count += (classes ? targets.numel() : targets.size(0)) - batch.ignored;
  }
  return count;
}

StepContext with_loss_weight(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches, LossMean mean,
    StepContext context) {
  if (!micro_batches.empty()) {
    const auto& first = micro_batches.front();
    const int64_t count = mean == LossMean::global_batch ? first.global_count
                                                         : count_in_loss(micro_batches);
    context.loss_weight = loss_weight(parts.loss, count, first.targets);
  }
  return context;
}

StepSums add_up_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches,
    const StepContext& context) {
  start_gradients(parts, micro_batches, context.trace);
  StepSums sums;
  NoSink no_sink;
  for (const auto& batch : micro_batches) {
    sums += parts.executor.forward(0, batch, context).sums;
    parts.executor.backward(0, {}, context, no_sink);
  }
  return sums;
}

StepSums local_step(
    const StrategyOptions& options, const StrategyParts& parts,
    const std::vector<Batch>& micro_batches, const StepContext& context) {
  const StepContext weighted =
      with_loss_weight(parts, micro_batches, LossMean::own_samples, context);
  const auto sums = add_up_gradients(parts, micro_batches, weighted);
  const TraceSpan span(context.trace, "update", "update");
  StepScalars step = scalars_of(context);
  clip(options, parts.arenas, step, [&] { return own_gradient_norm(parts.arenas); });
  update_all(parts, step);
  return sums;
}

}  // namespace tandem
