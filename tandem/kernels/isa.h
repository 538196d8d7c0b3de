#pragma once

namespace tandem {

/// The instruction sets that our own kernels are compiled for: base, AVX2 and AVX-512
/// on x86-64, NEON on aarch64, where every CPU has it, and base on other processors.
enum class Isa { base, neon, avx2, avx512 };

/// The best one of this CPU; on x86-64 as far as ONEDNN_MAX_CPU_ISA lets oneDNN go.
Isa kernel_isa();

/// Whether there is code for bfloat16 matrix tiles (AMX).
#if defined(__x86_64__)
constexpr bool kHasAmxKernels = true;
#else
constexpr bool kHasAmxKernels = false;
#endif

/// Whether such tiles may be used: the CPU has them, Linux gives them
/// to this process, and ONEDNN_MAX_CPU_ISA does not forbid them.
bool has_amx();

/// Whether this CPU multiplies bfloat16 by instructions of its own (AVX512_BF16 or
/// AMX), as far as ONEDNN_MAX_CPU_ISA allows. Without them bf16 is slower than float32.
/// Of Arm's such instructions nothing here makes use.
bool has_bf16();

template <typename Function>
Function for_isa(Function avx512, Function avx2, Function base) {
  switch (kernel_isa()) {
    case Isa::avx512:
      return avx512;
    case Isa::avx2:
      return avx2;
    default:
      return base;
  }
}

/// A function that is there for all instruction sets of the processor, for the best one
/// of this CPU; `type` is a pointer to it.
#if defined(__x86_64__)
#define TANDEM_FOR_ISA(type, function) \
  ::tandem::for_isa<type>(&avx512::function, &avx2::function, &base::function)
#elif defined(__aarch64__)
#define TANDEM_FOR_ISA(type, function) static_cast<type>(&neon::function)
#else
#define TANDEM_FOR_ISA(type, function) static_cast<type>(&base::function)
#endif

}  // namespace tandem
