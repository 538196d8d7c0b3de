#pragma once

#include <cstddef>
#include <exception>
#include <functional>

namespace tandem {

/// A function with a stack of its own, which runs when it is told to and pauses when it
/// wants to. One thread of the program runs all of them, and nothing runs beside
/// another. AddressSanitizer knows each stack.
class Fibre {
 public:
  static constexpr size_t kStackBytes = 256 * 1024;

  Fibre();
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// What the next resume() calls; it lives until it has ended. A function that has not
  /// ended is forgotten, with what lies on its stack.
  void start(const std::function<void()>& body);

  /// Runs the function until it pauses or ends. True when it has ended; rethrows what
  /// it threw.
  bool resume();

  /// Called by the function of the fibre that runs: back to resume().
  static void pause();

 private:
  [[noreturn]] static void enter();
  void switch_here();
  void switch_back();

  char* stack_;
  const std::function<void()>* body_ = nullptr;
  std::exception_ptr thrown_;
  bool ended_ = false;
  // Where the function, and who resumed it, go on: stack pointers.
  void* own_place_ = nullptr;
  void* callers_place_ = nullptr;
  // For the sanitizer: what it keeps of each, and the caller's stack.
  void* own_frames_ = nullptr;
  void* callers_frames_ = nullptr;
  const void* callers_stack_ = nullptr;
  size_t callers_stack_bytes_ = 0;
};

}  // namespace tandem
