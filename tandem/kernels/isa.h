#pragma once

namespace tandem {

/// The instruction sets that our own kernels are compiled for.
enum class Isa { base, avx2, avx512 };

/// The best one of this CPU, as far as ONEDNN_MAX_CPU_ISA lets oneDNN go.
Isa kernel_isa();

/// Whether bfloat16 matrix tiles (AMX) may be used: the CPU has them, Linux gives them
/// to this process, and ONEDNN_MAX_CPU_ISA does not forbid them.
bool has_amx();

/// Whether this CPU multiplies bfloat16 by instructions of its own (AVX512_BF16 or
/// AMX), as far as ONEDNN_MAX_CPU_ISA allows. Without them bf16 is slower than float32.
bool has_bf16();

template <typename Function>
Function for_isa(Function avx512, Function avx2, Function base) {
  switch (kernel_isa()) {
    case Isa::avx512:
      return avx512;
    case Isa::avx2:
      return avx2;
    case Isa::base:
      return base;
  }
  return base;
}

}  // namespace tandem
