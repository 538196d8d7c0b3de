#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tandem {

/// Returns this thread's floating-point control register: MXCSR on x86-64, FPCR on
/// aarch64; 0 on other processors.
inline uint64_t float_mode() {
#if defined(__x86_64__)
  return _mm_getcsr();
#elif defined(__aarch64__)
  uint64_t mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
#else
  return 0;
#endif
}

/// Sets the control register that float_mode() returns. Does nothing on other
/// processors.
inline void set_float_mode(uint64_t mode) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(mode));
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#else
  static_cast<void>(mode);
#endif
}

/// Makes this thread treat denormal numbers as zero, both as operands and as results.
/// Arithmetic with denormal numbers is many times slower, and such small values do not
/// influence training.
inline void flush_denormals() {
#if defined(__aarch64__)
  constexpr uint64_t kFlush = 1 << 24;
#else
  constexpr uint64_t kFlush = 0x8040;
#endif
  set_float_mode(float_mode() | kFlush);
}

/// Applies flush_denormals() to this thread while the object exists.
class FlushDenormals {
 public:
  FlushDenormals() : before_(float_mode()) {
    flush_denormals();
  }
  ~FlushDenormals() {
    set_float_mode(before_);
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint64_t before_;
};

}  // namespace tandem
