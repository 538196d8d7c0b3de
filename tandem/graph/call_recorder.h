#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/dropout.h"
#include "tandem/graph/call_listener.h"

namespace tandem {

/// Index of a tensor in Recording::tensors; kNoTensor for no tensor.
using RecordedId = int64_t;
constexpr RecordedId kNoTensor = -1;

/// An argument of a recorded call: a tensor, a list with tensors, or a constant.
struct RecordedArgument {
  RecordedId tensor = kNoTensor;
  // Elements of a list with tensors; the type of the elements is that of `constant`.
  std::vector<RecordedArgument> list;
  // Any other argument, such as a number, an undefined tensor or an element None.
  c10::IValue constant;
};

/// Calls body(id) for each tensor in the argument.
template <typename Body>
void for_each_tensor(const RecordedArgument& argument, const Body& body) {
  if (argument.tensor != kNoTensor) {
    body(argument.tensor);
  }
  for (const auto& element : argument.list) {
    for_each_tensor(element, body);
  }
}

using RecordedDraw = std::function<at::Tensor(const SampleContext&)>;

/// A call that a repetition of the recording makes again.
struct RecordedCall {
  // Replaces the arguments on the stack by the results.
  std::function<void(std::vector<c10::IValue>& stack, const SampleContext& samples)>
      run;
  // The operator of LibTorch; not set if the call is a draw or a check of arguments.
  c10::optional<c10::OperatorHandle> op;
  std::vector<RecordedArgument> arguments;
  // Tensors of the results in order; the elements of a list are separate results.
  std::vector<RecordedId> results;
  // Index in Recording::layers.
  size_t layer = 0;

  /// Returns whether the operator is `name`, such as "aten::add_", with any overload.
  bool calls(const char* name) const;
};

/// Calls body(id) for each tensor that the call reads.
template <typename Body>
void for_each_read(const RecordedCall& call, const Body& body) {
  for (const auto& argument : call.arguments) {
    for_each_tensor(argument, body);
  }
}

/// A tensor of a recording. An operator that writes in place returns a new tensor of
/// the recording, which shares the memory of the old one.
struct RecordedTensor {
  // The tensor if its memory is the same in every repetition: a parameter, a gradient,
  // a buffer or a constant. Otherwise undefined.
  at::Tensor fixed;
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  bool is_contiguous = false;
  // The first tensor with the same memory.
  RecordedId root = kNoTensor;
};

/// The calls of LibTorch's operators in a training step or in an evaluation, in order.
///
/// A repetition of the calls without autograd has the results of the recorded step for
/// other inputs of the same sizes, with equal bits.
struct Recording {
  std::vector<RecordedTensor> tensors;
  std::vector<RecordedCall> calls;
  // Number of calls of the forward pass.
  size_t forward_calls = 0;
  // Names of the layers; the first is "", for calls of no layer.
  std::vector<std::string> layers = {""};
  // Slots of parameters whose gradient is final after the given number of calls.
  std::multimap<size_t, size_t> ready_after;
};

/// Treatment of calls that draw from LibTorch's generator: they cannot be repeated, or
/// a repetition draws new numbers.
enum class RandomCalls { refuse, repeat };

/// Records the calls of operators that one thread makes in a CallListener::Scope.
///
/// The recorder identifies a tensor by its storage, sizes and strides.
///
/// Source: AOTAutograd (torch/_functorch/aot_autograd.py). Not thread-safe; each thread
/// can use its own recorder.
class CallRecorder : public CallListener {
 public:
  explicit CallRecorder(RandomCalls random = RandomCalls::refuse) : random_(random) {}

  /// Adds a tensor that differs in each repetition, such as a batch.
  RecordedId add_input(const at::Tensor& tensor);
  /// Adds a tensor whose memory is the same in each repetition, such as a parameter.
  void add_fixed(const at::Tensor& tensor);

  /// Returns the tensor; kNoTensor if no recorded call returned it.
  RecordedId find(const at::Tensor& tensor) const;
  /// Returns a tensor that a repetition must compute. It is an obstacle if no recorded
  /// call returned it.
  RecordedId result(const at::Tensor& tensor);

  /// Gives the name to the calls since the last layer, or since the start.
  void end_layer(const std::string& name);
  /// Gives the name to the calls that follow, until another layer begins or ends.
  void begin_layer(const std::string& name);
  /// Ends the current layer. A later end_layer(name) names the calls that follow.
  void end_layer() {
    layer_ = 0;
  }
  /// Ends the forward pass.
  void end_forward();
  /// Records that the gradient of a parameter is final.
  void gradient_ready(size_t slot);

  /// Returns the recording. Call it once, after all calls.
  Recording finish();

  /// Returns why the calls cannot be repeated, such as "aten::nonzero returns a tensor
  /// whose size depends on values"; "" if they can.
  const std::string& obstacle() const {
    return obstacle_;
  }

  /// Sets the treatment of the calls that follow, and returns that of earlier calls.
  RandomCalls set_random(RandomCalls random) {
    return std::exchange(random_, random);
  }

  /// Returns the recorder of the calling thread; null if it records nothing.
  static CallRecorder* current();

  // Functions for the recorded code.

  /// Records a call that tandem makes without LibTorch's dispatcher, after `run` with
  /// `stack`, whose values are replaced by the results.
  void call_function(
      std::vector<c10::IValue>& stack, const SampleContext& samples,
      decltype(RecordedCall::run) run);

  /// Makes and records a call of an operator.
  void call_operator(
      const c10::OperatorHandle& op, c10::DispatchKeySet keys,
      std::vector<c10::IValue>& stack) override;

 private:
  RecordedId add(const at::Tensor& tensor);
  // `reader` is the name of the call.
  RecordedArgument argument_of(const c10::IValue& value, const std::string& reader);
  void add_call(RecordedCall call, const std::vector<c10::IValue>& results);
  void note_obstacle(std::string text);

  RandomCalls random_;
  Recording recording_;
  std::string obstacle_;
  // The tensors of a storage.
  struct Memory {
    // A weak pointer, so that the memory is freed but no later storage gets its
    // address.
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    // The first tensor.
    RecordedId root;
    // By dtype, offset, sizes and strides; a tensor that is written in place moves to
    // its new id.
    std::map<std::vector<int64_t>, RecordedId> ids;
  };
  // Removes storages whose memory is freed, because their remaining headers fragment
  // the heap.
  void forget_freed();

  std::map<const void*, Memory> memories_;
  // The layer of the next call.
  size_t layer_ = 0;
};

/// Returns draw(samples). While the calling thread records, a repetition calls `draw`
/// again with its own samples.
at::Tensor draw_recorded(const SampleContext& samples, RecordedDraw draw);

}  // namespace tandem
