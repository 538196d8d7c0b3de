#include "tandem/graph/call_recorder.h"

#include <iterator>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

namespace {

using Values = std::vector<c10::IValue>;

// Identifies a tensor of a storage: autograd unpacks a saved output as another
// TensorImpl with the same storage.
std::vector<int64_t> key_of(const at::Tensor& tensor) {
  std::vector<int64_t> key = {
      static_cast<int64_t>(tensor.scalar_type()), tensor.storage_offset()};
  key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
  return key;
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

bool writes_in_place(const c10::OperatorHandle& op) {
  for (const auto& argument : op.schema().arguments()) {
    if (is_written(argument)) {
      return true;
    }
  }
  return false;
}

// Returns whether an operator that changes the shape of a tensor in place may also
// change its memory. Others, such as transpose_(), change only sizes and strides.
bool changes_memory(const std::string& name) {
  return name.rfind("aten::resize", 0) == 0 || name.rfind("aten::set_", 0) == 0;
}

// A list of indices, such as `x[mask]`, has a result of unknown size only if an index
// is a mask.
bool has_mask(const Values& stack) {
  for (const auto& value : stack) {
    if (!value.isList()) {
      continue;
    }
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor() && element.toTensor().defined() &&
          (element.toTensor().scalar_type() == at::kBool ||
           element.toTensor().scalar_type() == at::kByte)) {
        return true;
      }
    }
  }
  return false;
}

// Returns why a repetition of the call may differ from a recorded one, or "".
std::string obstacle_in(
    const c10::OperatorHandle& op, const Values& stack, RandomCalls random) {
  const std::string& name = op.schema().name();
  if (op.hasTag(at::Tag::data_dependent_output)) {
    return name + " reads a value that the program may decide by";
  }
  if (op.hasTag(at::Tag::dynamic_output_shape) &&
      (name.rfind("aten::index", 0) != 0 || has_mask(stack))) {
    return name + " returns a tensor whose size depends on values";
  }
  if (op.hasTag(at::Tag::inplace_view) && changes_memory(name)) {
    return name + " changes the memory of a tensor in place";
  }
  if (random == RandomCalls::refuse && op.hasTag(at::Tag::nondeterministic_seeded)) {
    return name + " draws random numbers from LibTorch's generator";
  }
  return "";
}

}  // namespace

bool RecordedCall::calls(const char* name) const {
  return op && op->schema().name() == name;
}

CallRecorder* CallRecorder::current() {
  return dynamic_cast<CallRecorder*>(CallListener::current());
}

RecordedId CallRecorder::add_input(const at::Tensor& tensor) {
  return add(tensor);
}

void CallRecorder::add_fixed(const at::Tensor& tensor) {
  if (find(tensor) != kNoTensor) {
    return;
  }
  if (const RecordedId id = add(tensor); id != kNoTensor) {
    recording_.tensors[static_cast<size_t>(id)].fixed = tensor.detach();
  }
}

RecordedId CallRecorder::find(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) {
    return kNoTensor;
  }
  const auto memory = memories_.find(storage_of(tensor));
  if (memory == memories_.end()) {
    return kNoTensor;
  }
  const auto found = memory->second.ids.find(key_of(tensor));
  return found == memory->second.ids.end() ? kNoTensor : found->second;
}

RecordedId CallRecorder::result(const at::Tensor& tensor) {
  const RecordedId id = find(tensor);
  if (id == kNoTensor) {
    note_obstacle(
        "no operator computed its result of the shape " + c10::str(tensor.sizes()));
  }
  return id;
}

RecordedId CallRecorder::add(const at::Tensor& tensor) {
  if (!tensor.has_storage()) {
    note_obstacle("it computes a tensor without strides, such as a sparse one");
    return kNoTensor;
  }
  const auto id = static_cast<RecordedId>(recording_.tensors.size());
  Memory& memory =
      memories_
          .try_emplace(
              storage_of(tensor), Memory{tensor.storage().getWeakStorageImpl(), id, {}})
          .first->second;
  recording_.tensors.push_back(
      {{},
       tensor.sizes().vec(),
       tensor.scalar_type(),
       tensor.is_contiguous(),
       memory.root});
  memory.ids[key_of(tensor)] = id;
  return id;
}

void CallRecorder::forget_freed() {
  for (auto memory = memories_.begin(); memory != memories_.end();) {
    memory =
        memory->second.storage.expired() ? memories_.erase(memory) : std::next(memory);
  }
}

void CallRecorder::note_obstacle(std::string text) {
  if (obstacle_.empty()) {
    obstacle_ = std::move(text);
  }
}

RecordedArgument CallRecorder::argument_of(
    const c10::IValue& value, const std::string& reader) {
  RecordedArgument argument;
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    argument.tensor = find(tensor);
    if (argument.tensor != kNoTensor) {
      return argument;
    }
    // lift_fresh() makes a tensor of a number in the program.
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
        reader != "aten::lift_fresh") {
      note_obstacle(
          reader + " reads a tensor of the shape " + c10::str(tensor.sizes()) +
          " that no operator computed");
    }
    argument.constant = value;
    return argument;
  }
  argument.constant = value;
  if (value.isTensorList() || value.isOptionalTensorList()) {
    // Does not keep the tensors alive.
    argument.constant = c10::impl::GenericList(value.toList().elementType());
    for (const c10::IValue& element : value.toListRef()) {
      argument.list.push_back(argument_of(element, reader));
    }
  }
  return argument;
}

void CallRecorder::add_call(RecordedCall call, const Values& results) {
  forget_freed();
  const bool in_place = call.op && writes_in_place(*call.op);
  const auto add_result = [&](const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) {
      call.results.push_back(kNoTensor);
      return;
    }
    const RecordedId known = find(value.toTensor());
    call.results.push_back(
        known == kNoTensor || in_place ? add(value.toTensor()) : known);
  };
  for (const auto& result : results) {
    if (result.isTensorList()) {
      for (const c10::IValue& element : result.toListRef()) {
        add_result(element);
      }
    } else {
      add_result(result);
    }
  }
  call.layer = layer_;
  recording_.calls.push_back(std::move(call));
}

void CallRecorder::call_operator(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys, Values& stack) {
  const size_t arguments = op.schema().arguments().size();
  const Values before(
      stack.end() - static_cast<std::ptrdiff_t>(arguments), stack.end());
  if (std::string obstacle = obstacle_in(op, before, random_); !obstacle.empty()) {
    note_obstacle(std::move(obstacle));
  }
  RecordedCall call;
  call.op = op;
  call.run = [op](Values& values, const SampleContext&) {
    if (op.hasTag(at::Tag::inplace_view)) {
      // Other calls may read the tensor in its old shape.
      values[0] = values[0].toTensor().alias();
    }
    op.callBoxed(&values);
  };
  for (const auto& value : before) {
    call.arguments.push_back(argument_of(value, op.schema().name()));
  }
  // Autograd's kernel may call other operators first, for instance to copy a tensor
  // that is written in place. Without such a kernel, all inner calls are parts.
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Autograd)) {
    op.redispatchBoxed(keys, &stack);
  } else {
    const Pause parts;
    op.redispatchBoxed(keys, &stack);
  }
  const auto results = static_cast<std::ptrdiff_t>(op.schema().returns().size());
  add_call(std::move(call), Values(stack.end() - results, stack.end()));
}

void CallRecorder::call_function(
    Values& stack, const SampleContext& samples, decltype(RecordedCall::run) run) {
  RecordedCall call;
  for (const auto& value : stack) {
    call.arguments.push_back(argument_of(value, "a check"));
  }
  {
    const Pause parts;
    run(stack, samples);
  }
  call.run = std::move(run);
  add_call(std::move(call), stack);
}

void CallRecorder::begin_layer(const std::string& name) {
  layer_ = recording_.layers.size();
  recording_.layers.push_back(name);
}

void CallRecorder::end_layer(const std::string& name) {
  begin_layer(name);
  for (auto call = recording_.calls.rbegin();
       call != recording_.calls.rend() && call->layer == 0; ++call) {
    call->layer = layer_;
  }
  layer_ = 0;
}

void CallRecorder::end_forward() {
  recording_.forward_calls = recording_.calls.size();
}

void CallRecorder::gradient_ready(size_t slot) {
  recording_.ready_after.emplace(recording_.calls.size(), slot);
}

Recording CallRecorder::finish() {
  return std::move(recording_);
}

at::Tensor draw_recorded(const SampleContext& samples, RecordedDraw draw) {
  CallRecorder* recorder = CallRecorder::current();
  if (recorder == nullptr) {
    return draw(samples);
  }
  Values stack;
  recorder->call_function(
      stack, samples,
      [draw = std::move(draw)](Values& results, const SampleContext& context) {
        results.push_back(draw(context));
      });
  return stack[0].toTensor();
}

}  // namespace tandem
