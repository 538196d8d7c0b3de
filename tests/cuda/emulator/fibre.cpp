#include "tests/cuda/emulator/fibre.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TANDEM_FIBRES_FOR_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define TANDEM_FIBRES_FOR_ASAN 1
#endif
#if defined(TANDEM_FIBRES_FOR_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a function must keep on its stack and the stack's address in
// `*from`, and goes on where `to` was saved. swapcontext() calls the kernel each time,
// and makes the sanitizer forget what it knows of the stack.
extern "C" void tandem_switch_stack(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.type tandem_switch_stack, @function
tandem_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tandem_switch_stack, . - tandem_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
.text
.type tandem_switch_stack, %function
tandem_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size tandem_switch_stack, . - tandem_switch_stack
)");
#else
#error "The fibres of kernels' tests know x86-64 and aarch64 only"
#endif

namespace tandem {

namespace {

Fibre* running = nullptr;

// A place where tandem_switch_stack() finds zeros for the registers that it saves, and
// `entry` to go on at. What called `entry` is 0: there unwinding ends.
void* first_place(char* stack, void (*entry)()) {
  auto* top = reinterpret_cast<uintptr_t*>(stack + Fibre::kStackBytes);
#if defined(__x86_64__)
  constexpr size_t kWords = 10;
  constexpr size_t kEntry = 6;
#else
  constexpr size_t kWords = 20;
  constexpr size_t kEntry = 11;
#endif
  uintptr_t* place = top - kWords;
  std::fill(place, top, uintptr_t{0});
  place[kEntry] = reinterpret_cast<uintptr_t>(entry);
  return place;
}

}  // namespace

Fibre::Fibre()
    : stack_(static_cast<char*>(mmap(
          nullptr, kStackBytes, PROT_READ | PROT_WRITE,
          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (stack_ == MAP_FAILED) {
    throw std::bad_alloc();
  }
}

Fibre::~Fibre() {
  munmap(stack_, kStackBytes);
}

void Fibre::start(const std::function<void()>& body) {
  body_ = &body;
  // One that has ended waits for the next function: the sanitizer keeps much for each
  // new stack.
  if (!ended_) {
#if defined(TANDEM_FIBRES_FOR_ASAN)
    __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
    own_frames_ = nullptr;
    own_place_ = first_place(stack_, &Fibre::enter);
  }
  ended_ = false;
}

bool Fibre::resume() {
  Fibre* const before = std::exchange(running, this);
  switch_here();
  running = before;
  if (thrown_) {
    std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
  return ended_;
}

void Fibre::pause() {
  running->switch_back();
}

void Fibre::switch_here() {
#if defined(TANDEM_FIBRES_FOR_ASAN)
  __sanitizer_start_switch_fiber(&callers_frames_, stack_, kStackBytes);
#endif
  tandem_switch_stack(&callers_place_, own_place_);
#if defined(TANDEM_FIBRES_FOR_ASAN)
  __sanitizer_finish_switch_fiber(callers_frames_, nullptr, nullptr);
#endif
}

void Fibre::switch_back() {
#if defined(TANDEM_FIBRES_FOR_ASAN)
  __sanitizer_start_switch_fiber(&own_frames_, callers_stack_, callers_stack_bytes_);
#endif
  tandem_switch_stack(&own_place_, callers_place_);
#if defined(TANDEM_FIBRES_FOR_ASAN)
  __sanitizer_finish_switch_fiber(own_frames_, &callers_stack_, &callers_stack_bytes_);
#endif
}

void Fibre::enter() {
  Fibre& self = *running;
#if defined(TANDEM_FIBRES_FOR_ASAN)
  __sanitizer_finish_switch_fiber(
      nullptr, &self.callers_stack_, &self.callers_stack_bytes_);
#endif
  for (;;) {
    try {
      (*self.body_)();
    } catch (...) {
      self.thrown_ = std::current_exception();
    }
    self.ended_ = true;
    self.switch_back();
  }
}

}  // namespace tandem
