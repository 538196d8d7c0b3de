#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace tandem {

/// Sees the operators of LibTorch that one thread calls, including those of autograd's
/// backward pass, before autograd does.
///
/// It sees the parts of an operator that is only a composition, and otherwise the
/// operator as one call. Each thread can have one listener.
class CallListener {
 public:
  /// The dispatch key of the calls. No other code uses it.
  static constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

  virtual ~CallListener() = default;

  /// Makes a call of an operator: op.redispatchBoxed(keys, &stack).
  virtual void call_operator(
      const c10::OperatorHandle& op, c10::DispatchKeySet keys,
      std::vector<c10::IValue>& stack) = 0;

  /// Returns the listener of the calling thread; null if there is none.
  static CallListener* current();

  /// While the object exists, `listener` sees the calling thread's calls.
  class Scope {
   public:
    explicit Scope(CallListener& listener);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    c10::impl::IncludeDispatchKeyGuard calls_;
  };

  /// While the object exists, no listener sees the calling thread's calls.
  class Pause {
   private:
    c10::impl::ExcludeDispatchKeyGuard calls_{kKey};
  };
};

/// Returns whether the operator writes to this argument.
inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

}  // namespace tandem
