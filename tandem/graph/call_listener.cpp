#include "tandem/graph/call_listener.h"

#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include "tandem/base/error.h"

namespace tandem {

namespace {

thread_local CallListener* listener_of_thread = nullptr;

// Returns whether LibTorch computes the operator only by calls of other operators that
// autograd sees.
bool is_composition(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Every call of an operator in a CallListener::Scope.
void see_call(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    std::vector<c10::IValue>* stack) {
  const auto below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, CallListener::kKey);
  // Kernels below autograd make calls that are parts of a call.
  const bool is_part = c10::impl::tls_local_dispatch_key_set().excluded_.has(
      c10::DispatchKey::AutogradFunctionality);
  CallListener* const listener = CallListener::current();
  if (is_part || listener == nullptr || is_composition(op)) {
    op.redispatchBoxed(below, stack);
  } else {
    listener->call_operator(op, below, *stack);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&see_call>());
}

CallListener* CallListener::current() {
  return listener_of_thread;
}

CallListener::Scope::Scope(CallListener& listener) : calls_(kKey) {
  TANDEM_CHECK(listener_of_thread == nullptr, "a thread has two listeners");
  listener_of_thread = &listener;
}

CallListener::Scope::~Scope() {
  listener_of_thread = nullptr;
}

}  // namespace tandem
