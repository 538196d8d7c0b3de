#include "tandem/exec/api/checkpoint.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "tandem/core/recompute.h"
#include "tandem/exec/program/saved_state.h"
#include "tandem/graph/call_recorder.h"

namespace tandem {

namespace {

using checkpoint_parts::Tensors;

// States of LibTorch's generators for the CPU and for the GPUs of the tensors.
class RandomState {
 public:
  explicit RandomState(const Tensors& tensors) {
    std::vector<at::Device> devices = {at::Device(at::kCPU)};
    for (const auto& tensor : tensors) {
      if (tensor.defined() && tensor.is_cuda() &&
          std::count(devices.begin(), devices.end(), tensor.device()) == 0) {
        devices.push_back(tensor.device());
      }
    }
    for (const at::Device device : devices) {
      auto generator = at::globalContext().defaultGenerator(device);
      const std::lock_guard<std::mutex> lock(generator.mutex());
      states_.emplace_back(generator, generator.get_state());
    }
  }

  void restore() const {
    for (auto [generator, state] : states_) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// While the object exists, LibTorch's generators continue from a saved state.
class RepeatedDraws {
 public:
  RepeatedDraws(const RandomState& saved, const Tensors& tensors) : outer_(tensors) {
    saved.restore();
  }
  ~RepeatedDraws() {
    outer_.restore();
  }
  RepeatedDraws(const RepeatedDraws&) = delete;
  RepeatedDraws& operator=(const RepeatedDraws&) = delete;

 private:
  RandomState outer_;
};

// While the object exists, a recording refuses calls that draw random numbers, because
// a repetition would draw other numbers in backward than in forward.
class RefusedDraws {
 public:
  RefusedDraws() : recorder_(CallRecorder::current()) {
    if (recorder_ != nullptr) {
      before_ = recorder_->set_random(RandomCalls::refuse);
    }
  }
  ~RefusedDraws() {
    if (recorder_ != nullptr) {
      recorder_->set_random(before_);
    }
  }
  RefusedDraws(const RefusedDraws&) = delete;
  RefusedDraws& operator=(const RefusedDraws&) = delete;

 private:
  CallRecorder* recorder_;
  RandomCalls before_ = RandomCalls::refuse;
};

}  // namespace

Tensors checkpoint_parts::checkpoint(
    CheckpointOptions options, std::function<Tensors(const Tensors&)> function,
    const Tensors& inputs) {
  std::optional<RandomState> random;
  if (options.preserve_rng_state) {
    random.emplace(inputs);
  }
  return recompute(
      [=, function = std::move(function)](const Tensors& values, bool again) {
        if (!again) {
          return function(values);
        }
        const RefusedDraws refused;
        SavedState saved(/*draws=*/false);
        for (const auto& buffer : options.buffers) {
          saved.save(buffer);
        }
        std::optional<RepeatedDraws> draws;
        if (random) {
          draws.emplace(*random, values);
        }
        return function(values);
      },
      inputs);
}

}  // namespace tandem
