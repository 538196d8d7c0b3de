#include "tandem/parallel/ddp/data_parallel_module.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/core/torch_compat.h"

namespace tandem {

namespace {

std::vector<at::Tensor> tensors_of(const torch::nn::Module& module) {
  auto tensors = module.parameters();
  const auto buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  return tensors;
}

// Makes a replica's tensor use the values of `original`. Gradients of the replica's
// tensor are added to the gradient of `original`.
void follow(at::Tensor& tensor, const at::Tensor& original, bool is_copied) {
  namespace impl = torch::autograd::impl;
  if (!original.is_cpu()) {
    throw ConfigError(
        "[data_parallel] the module is on " + original.device().str() +
        ", expected cpu; move it, or use torch::nn::parallel::data_parallel");
  }
  impl::set_gradient_edge(tensor, {});
  tensor.set_requires_grad(false);
  tensor.set_data(is_copied ? original.detach().clone() : original);
  if (!is_copied) {
    // With a shared counter, autograd detects changes between a forward and its
    // backward.
    impl::set_version_counter(tensor, impl::version_counter(original));
  }
  impl::set_gradient_edge(tensor, impl::gradient_edge(original));
}

}  // namespace

size_t chunk_tensors(const std::vector<NestedTensors>& replicas) {
  std::optional<size_t> num_chunks;
  for (size_t i = 0; i < replicas[0].tensors.size(); ++i) {
    const at::Tensor whole = *replicas[0].tensors[i];
    if (!whole.defined()) {
      continue;
    }
    const auto chunks = whole.dim() == 0
                            ? std::vector<at::Tensor>()
                            : whole.chunk(static_cast<int64_t>(replicas.size()));
    if (chunks.empty() || chunks.size() != num_chunks.value_or(chunks.size())) {
      throw ConfigError(
          "[data_parallel] an input tensor of shape " + c10::str(whole.sizes()) +
          " makes " + std::to_string(chunks.size()) + " chunks, expected " +
          std::to_string(num_chunks.value_or(replicas.size())) +
          "; pass tensors with equal numbers of rows");
    }
    num_chunks = chunks.size();
    for (size_t replica = 0; replica < chunks.size(); ++replica) {
      *replicas[replica].tensors[i] = chunks[replica];
    }
  }
  return num_chunks.value_or(replicas.size());
}

void concatenate_tensors(const std::vector<NestedTensors>& replicas) {
  for (const auto& replica : replicas) {
    if (replica.structure != replicas[0].structure) {
      throw ConfigError(
          "[data_parallel] lengths or keys of an output are " + replica.structure +
          " expected " + replicas[0].structure +
          " as from replica 0; make them the same for all replicas");
    }
  }
  for (size_t i = 0; i < replicas[0].tensors.size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const auto& replica : replicas) {
      const at::Tensor& part = *replica.tensors[i];
      parts.push_back(part.defined() && part.dim() == 0 ? part.unsqueeze(0) : part);
    }
    if (parts[0].defined()) {
      *replicas[0].tensors[i] = at::cat(parts);
    }
  }
}

// A clone of the module and its thread, which runs one task at a time.
class ReplicatedModule::Replica {
 public:
  ~Replica() {
    run([this] { ends_ = true; });
    thread_.join();
  }

  std::future<void> run(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    task_ = std::packaged_task<void()>(std::move(work));
    posted_.notify_one();
    return task_.get_future();
  }

  std::shared_ptr<torch::nn::Module> module;
  std::vector<at::Tensor> tensors;

 private:
  void run_tasks() {
    while (!ends_) {
      std::unique_lock<std::mutex> lock(mutex_);
      posted_.wait(lock, [this] { return task_.valid(); });
      auto task = std::move(task_);
      lock.unlock();
      task();
    }
  }

  bool ends_ = false;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::packaged_task<void()> task_;
  std::thread thread_{[this] { run_tasks(); }};
};

ReplicatedModule::ReplicatedModule(
    std::shared_ptr<torch::nn::Module> module, int64_t num_replicas)
    : original_(std::move(module)), num_replicas_(num_replicas) {
  if (num_replicas < 1) {
    throw ConfigError(
        "[data_parallel] the number of replicas is " + std::to_string(num_replicas) +
        ", expected 1 or more; change it");
  }
  if (num_replicas == 1) {
    return;
  }
  const int num_threads = at::get_num_threads();
  const int each = std::max(1, num_threads / static_cast<int>(num_replicas));
  for (int64_t i = 0; i < num_replicas; ++i) {
    replicas_.push_back(std::make_unique<Replica>());
    const auto set_num_threads = [each] {
      // Without this call, LibTorch would initialize the number of threads later, at
      // the thread's first use, and overwrite the number set below.
      at::get_num_threads();
      at::set_num_threads(each);
    };
    replicas_.back()->run(set_num_threads).get();
  }
  // Restores the number for threads that start later, which use the last number that
  // was set.
  at::set_num_threads(num_threads);
  replicate();
}

ReplicatedModule::~ReplicatedModule() = default;

void ReplicatedModule::replicate() {
  const c10::InferenceMode off(false);
  // clone() draws new weights before it copies. The generator is restored, so that the
  // caller's random numbers do not change.
  auto generator = at::detail::getDefaultCPUGenerator();
  const auto state = generator.get_state();
  tensors_ = tensors_of(*original_);
  for (auto& replica : replicas_) {
    try {
      replica->module = original_->clone();
    } catch (const c10::Error& error) {
      throw ConfigError(
          "[data_parallel] the module cannot be cloned (" + first_line(error) +
          "); derive it from torch::nn::Cloneable, or override its clone()");
    }
    replica->tensors = tensors_of(*replica->module);
    if (replica->tensors.size() != tensors_.size() ||
        replica->module->modules().size() != original_->modules().size()) {
      throw ConfigError(
          "[data_parallel] clone() returns a module with other parameters, buffers or "
          "children, expected the same; change clone()");
    }
  }
  generator.set_state(state);
}

void ReplicatedModule::follow_module(size_t count) {
  const c10::InferenceMode off(false);
  const auto is_same = [](const auto& a, const auto& b) { return a.is_same(b); };
  const auto now = tensors_of(*original_);
  if (!std::equal(now.begin(), now.end(), tensors_.begin(), tensors_.end(), is_same)) {
    replicate();
  }
  const size_t num_parameters = original_->parameters().size();
  const auto modules = original_->modules();
  for (size_t replica = 0; replica < count; ++replica) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const bool is_copied = replica > 0 && i >= num_parameters;
      if (tensors_[i].defined()) {
        follow(replicas_[replica]->tensors[i], tensors_[i], is_copied);
      }
    }
    const auto clones = replicas_[replica]->module->modules();
    // train() also changes submodules, but these are later in the list and get their
    // mode there.
    for (size_t i = 0; i < clones.size(); ++i) {
      clones[i]->train(modules[i]->is_training());
    }
  }
}

void ReplicatedModule::run(
    size_t count, const std::function<void(size_t, torch::nn::Module&)>& forward) {
  const std::unique_lock<std::mutex> alone(running_, std::try_to_lock);
  if (!alone) {
    throw ConfigError(
        "[data_parallel] forward() is already running, expected one call at a time; "
        "wait for its end");
  }
  follow_module(count);
  const at::ThreadLocalState state;
  const auto dtype = autocast_dtype(at::kCPU);
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::future<void>> ends(count);
  for (size_t i = 0; i < count; ++i) {
    ends[i] = replicas_[i]->run([&, i] {
      const at::ThreadLocalStateGuard as_caller(state);
      set_autocast_dtype(at::kCPU, dtype);
      // All threads share autocast's cache, but replicas have different weight tensors.
      at::autocast::set_autocast_cache_enabled(false);
      try {
        forward(i, *replicas_[i]->module);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  for (const auto& end : ends) {
    end.wait();
  }
  for (size_t i = 0; i < count; ++i) {
    try {
      if (failures[i] != nullptr) {
        std::rethrow_exception(failures[i]);
      }
    } catch (const std::exception& error) {
      std::throw_with_nested(Error(
          "[data_parallel] replica " + std::to_string(i) + " of " +
          std::to_string(num_replicas_) + ": " + first_line(error)));
    }
  }
}

}  // namespace tandem
