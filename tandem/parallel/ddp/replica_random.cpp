#include "tandem/parallel/ddp/replica_random.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

namespace tandem {

namespace {

at::CPUGeneratorImpl& process_generator() {
  return *at::check_generator<at::CPUGeneratorImpl>(
      at::detail::getDefaultCPUGenerator());
}

// Held while a replica's numbers are in the place of the process's.
std::mutex& drawing() {
  static std::mutex mutex;
  return mutex;
}

bool takes_generator(const c10::FunctionSchema& schema) {
  return std::any_of(
      schema.arguments().begin(), schema.arguments().end(), [](const auto& argument) {
        return argument.type()->str().find("Generator") != std::string::npos;
      });
}

// Names as "aten::bernoulli_", of all of an operator's overloads together: those
// without a generator call one that has it.
std::unordered_set<std::string> find_operators_that_draw() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::unordered_set<std::string> names;
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto found = dispatcher.findSchema(name);
    if (found.has_value() && takes_generator(found->schema())) {
      names.insert(name.name);
    }
  }
  return names;
}

bool draws(const char* operator_name) {
  static const auto names = find_operators_that_draw();
  static const std::unordered_set<std::string_view> views(names.begin(), names.end());
  return views.count(operator_name) > 0;
}

}  // namespace

// What LibTorch's callbacks, which are plain functions, know of their thread.
struct DrawingThread {
  ReplicaRandom* numbers = nullptr;
  size_t replica = 0;
  bool draws_now = false;

  // Marks the operator that began to draw: those that it calls do so within.
  struct Outermost : at::ObserverContext {};

  static DrawingThread& here() {
    thread_local DrawingThread thread;
    return thread;
  }

  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& called) {
    auto& thread = here();
    if (thread.numbers == nullptr || thread.draws_now || !draws(called.name())) {
      return nullptr;
    }
    thread.numbers->begin(thread.replica);
    thread.draws_now = true;
    return std::make_unique<Outermost>();
  }

  static void stop(const at::RecordFunction& /*called*/, at::ObserverContext* context) {
    auto& thread = here();
    if (context != nullptr && thread.draws_now) {
      thread.numbers->end(thread.replica);
      thread.draws_now = false;
    }
  }
};

ReplicaRandom::Scope::Scope(ReplicaRandom& numbers, size_t replica)
    : callback_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&DrawingThread::start, &DrawingThread::stop)
              .scopes({at::RecordScope::FUNCTION}))) {
  DrawingThread::here() = {&numbers, replica, false};
}

ReplicaRandom::Scope::~Scope() {
  at::removeCallback(callback_);
  DrawingThread::here() = {};
}

ReplicaRandom::State ReplicaRandom::exchange(const State& state) {
  auto& generator = process_generator();
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  State before = {
      generator.engine(), generator.next_float_normal_sample(),
      generator.next_double_normal_sample()};
  generator.set_engine(state.engine);
  generator.set_next_float_normal_sample(state.normal32);
  generator.set_next_double_normal_sample(state.normal64);
  return before;
}

void ReplicaRandom::choose_seeds() {
  auto& generator = process_generator();
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  while (replicas_.size() < num_replicas_) {
    replicas_.push_back({at::mt19937(generator.random64()), {}, {}});
  }
}

void ReplicaRandom::begin(size_t replica) {
  drawing().lock();
  if (replicas_.empty()) {
    choose_seeds();
  }
  process_ = exchange(replicas_[replica]);
}

void ReplicaRandom::end(size_t replica) {
  replicas_[replica] = exchange(process_);
  drawing().unlock();
}

}  // namespace tandem
