#include "tandem/base/error.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tandem/parallel/strategy.h"
#include "tandem/parallel/update/arena_update.h"

namespace tandem {

namespace {

// Hogwild (Recht, Re, Wright, Niu, "Hogwild!: A Lock-Free Approach to Parallelizing
// Stochastic Gradient Descent", NIPS 2011). The parameter arenas of all ranks are one
// block of shared memory (shared_parameters.h). Each rank makes steps on its own
// samples, with its own gradients and optimizer state, and reads the newest values of
// other ranks.
//
// Optimizers load and store aligned numbers, so an update may be lost, but no read
// returns a half-written number. (The thread sanitizer does not detect these races,
// because each rank has its own mapping.) Barriers stop all steps at the end of an
// epoch and during a checkpoint.
class Hogwild : public Strategy {
 public:
  using Strategy::Strategy;

  void start() override {
    // After this barrier, all ranks have written their initial values, for instance
    // from a checkpoint.
    parts_.comm.barrier("start");
    check_shared();
    broadcast_arena(parts_.comm, parts_.arenas.buffers());
    broadcast_state(parts_.comm, parts_.optimizer);
    notify_executor(parts_);
  }

  StepSums train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) override {
    if (micro_batches.empty()) {
      return {};
    }
    // Other ranks may have changed the parameters.
    notify_executor(parts_);
    return local_step(options_, parts_, micro_batches, context);
  }

  void end_epoch(bool) override {
    parts_.comm.barrier("epoch");
  }

  Consistency consistency() const override {
    return Consistency::asynchronous;
  }

  bool steps_alone() const override {
    return true;
  }

  void before_evaluation() override {
    sync_buffers(parts_.comm, parts_.arenas, options_.buffers);
    notify_executor(parts_);
  }

  // Returns rank 0's optimizer state, and a copy of the parameters, since other ranks
  // continue to write them while rank 0 saves.
  TrainingState collect_state() override {
    sync_buffers(parts_.comm, parts_.arenas, options_.buffers);
    auto state = local_state(parts_.arenas, parts_.optimizer);
    parts_.comm.barrier("checkpoint");
    if (parts_.comm.rank() == 0) {
      for (auto& [name, tensor] : state.model) {
        tensor = tensor.detach().clone();
      }
    }
    parts_.comm.barrier("checkpoint");
    return state;
  }

 private:
  // Throws ConfigError unless this rank and rank 0 have their parameters in the same
  // memory. Without this check, each rank might silently train its own model.
  void check_shared() {
    if (parts_.arenas.parameters().layout().segments().empty()) {
      return;
    }
    auto first = parts_.arenas.parameters().segment(0).narrow(0, 0, 1);
    const auto before = first.clone();
    parts_.comm.barrier("shared parameters");
    if (parts_.comm.rank() == 0) {
      first.fill_(before.item<double>() == 0 ? 1 : 0);
    }
    parts_.comm.barrier("shared parameters");
    const bool shared = !first.equal(before);
    parts_.comm.barrier("shared parameters");
    if (parts_.comm.rank() == 0) {
      first.copy_(before);
    }
    parts_.comm.barrier("shared parameters");
    if (!shared) {
      throw ConfigError(
          "[hogwild] this rank does not share the memory of rank 0's parameters; set "
          "ModelArenaOptions::allocate_parameters to share_parameters()");
    }
  }
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(
    KindTag<StrategyKind::hogwild>, const StrategyOptions& options,
    const StrategyParts& parts) {
  return std::make_unique<Hogwild>(options, parts);
}

}  // namespace tandem
