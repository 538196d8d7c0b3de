#pragma once

// Vector types for source files that are compiled once for each instruction set
// (CMakeLists.txt). These files must not share inline functions with other files,
// because the linker could use the version for the wrong instruction set. Therefore,
// all definitions in this header have internal linkage, and these files include few
// other headers.

#include <cstdint>
#include <cstring>

#include "tandem/core/bf16.h"

namespace tandem::TANDEM_ISA {

namespace {

// Number of floats in the widest vector of the instruction set.
//
// Kernels use the compiler's vector types (Vectors), because compilers do not vectorize
// loops of a few iterations. If a type has more than kWidest floats, the compiler uses
// several vectors.
#if defined(__AVX512F__)
constexpr int kWidest = 16;
#elif defined(__AVX2__)
constexpr int kWidest = 8;
#else
constexpr int kWidest = 4;
#endif

// Number of vector registers of the CPU.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

// Vectors of L values.
template <int L>
struct Vectors {
  using Floats __attribute__((vector_size(4 * L))) = float;
  using Ints __attribute__((vector_size(4 * L))) = int32_t;
  using Words __attribute__((vector_size(4 * L))) = uint32_t;
  using Halves __attribute__((vector_size(2 * L))) = uint16_t;
  using Bytes __attribute__((vector_size(L))) = uint8_t;
};

// A type for the number N. Passed to a lambda, it makes N a compile-time constant.
template <int N>
struct Count {
  static constexpr int value = N;
};

// Functions that load and store L neighboring values at any address, without
// requirements on alignment.
template <int L>
struct Lanes {
  using Floats = typename Vectors<L>::Floats;
  using Ints = typename Vectors<L>::Ints;
  using Words = typename Vectors<L>::Words;
  using Halves = typename Vectors<L>::Halves;
  using Bytes = typename Vectors<L>::Bytes;
  using LooseFloats __attribute__((vector_size(4 * L), aligned(4), may_alias)) = float;

  // True if loads and stores use LooseFloats instead of memcpy(). On AVX2, GCC 12
  // compiles memcpy() to copies of 16 bytes through the stack.
  static constexpr bool kLoose = L == 8 && kWidest == 8;

  template <typename Vector>
  TANDEM_ALWAYS_INLINE static void load_bits(Vector& into, const void* from) {
    std::memcpy(&into, from, sizeof(into));
  }
  TANDEM_ALWAYS_INLINE static void load(Floats& into, const float* from) {
    if constexpr (kLoose) {
      into = *reinterpret_cast<const LooseFloats*>(from);
    } else {
      load_bits(into, from);
    }
  }
  TANDEM_ALWAYS_INLINE static void load(Floats& into, const Bf16* from) {
    Halves halves;
    load_bits(halves, from);
    const Words words = __builtin_convertvector(halves, Words) << 16;
    std::memcpy(&into, &words, sizeof(into));
  }
  TANDEM_ALWAYS_INLINE static void store(const Floats& from, float* to) {
    if constexpr (kLoose) {
      *reinterpret_cast<LooseFloats*>(to) = from;
    } else {
      std::memcpy(to, &from, sizeof(from));
    }
  }
  // Rounds to bfloat16 as narrow() in bf16.h does.
  TANDEM_ALWAYS_INLINE static void store(const Floats& from, Bf16* to) {
    Words words;
    std::memcpy(&words, &from, sizeof(words));
    const Words rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16;
    const auto is_nan = from != from;
    const Halves halves =
        __builtin_convertvector(is_nan ? Words{} + 0x7FC0 : rounded, Halves);
    std::memcpy(to, &halves, sizeof(halves));
  }
};

}  // namespace

}  // namespace tandem::TANDEM_ISA
