#include "tandem/exec/program/instruction.h"

#include <utility>

#include "tandem/base/error.h"

namespace tandem {

namespace {

c10::IValue value_of(const RecordedArgument& argument, const ProgramState& state) {
  if (argument.tensor != kNoTensor) {
    return state.tensors[static_cast<size_t>(argument.tensor)];
  }
  if (argument.list.empty()) {
    return argument.constant;
  }
  c10::impl::GenericList list(argument.constant.toList().elementType());
  for (const auto& element : argument.list) {
    list.push_back(value_of(element, state));
  }
  return list;
}

// Stores the results of a call; the elements of a list are separate results.
void store(
    const RecordedCall& call, std::vector<c10::IValue>& stack, ProgramState& state) {
  size_t next = 0;
  const auto put = [&](c10::IValue&& value) {
    const RecordedId id = call.results.at(next++);
    if (id != kNoTensor) {
      state.tensors[static_cast<size_t>(id)] = std::move(value).toTensor();
    }
  };
  for (auto& result : stack) {
    if (result.isTensorList()) {
      for (auto& tensor : result.toTensorVector()) {
        put(std::move(tensor));
      }
    } else {
      put(std::move(result));
    }
  }
  TANDEM_CHECK(next == call.results.size(), "a repeated call has other results");
}

// A call with a stack that is prepared once; only tensors are set in each run.
class PreparedCall {
 public:
  explicit PreparedCall(const RecordedCall& call) : call_(&call) {
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      const auto& argument = call.arguments[i];
      arguments_.push_back(argument.constant);
      if (argument.tensor != kNoTensor || !argument.list.empty()) {
        changing_.push_back(i);
      }
    }
  }

  void operator()(ProgramState& state) const {
    std::vector<c10::IValue> stack = arguments_;
    for (const size_t i : changing_) {
      stack[i] = value_of(call_->arguments[i], state);
    }
    call_->run(stack, state.samples);
    store(*call_, stack, state);
  }

 private:
  const RecordedCall* call_;
  std::vector<c10::IValue> arguments_;
  std::vector<size_t> changing_;
};

}  // namespace

Instruction instruction_of(const RecordedCall& call) {
  Instruction instruction{
      call.op ? call.op->schema().name() : "function of tandem",
      PreparedCall(call),
      {},
      call.results,
      call.layer};
  for_each_read(call, [&](RecordedId id) { instruction.reads.push_back(id); });
  return instruction;
}

}  // namespace tandem
