#pragma once

namespace tandem {

/// Instruction sets for which tandem's kernels are compiled: base, AVX2 and AVX-512 on
/// x86-64, NEON on aarch64, and base on other processors. Every aarch64 CPU has NEON.
enum class Isa { base, neon, avx2, avx512 };

/// Returns this CPU's best instruction set. On x86-64, the environment variable
/// ONEDNN_MAX_CPU_ISA limits the result, as it limits oneDNN.
Isa kernel_isa();

/// True if kernels for AMX, bfloat16 matrix tiles, are compiled.
#if defined(__x86_64__)
constexpr bool kHasAmxKernels = true;
#else
constexpr bool kHasAmxKernels = false;
#endif

/// Returns whether this process may use AMX tiles: the CPU has them, Linux permits
/// them, and ONEDNN_MAX_CPU_ISA allows them.
bool has_amx();

/// Returns whether this CPU has instructions for bfloat16 products (AVX512_BF16 or AMX)
/// and ONEDNN_MAX_CPU_ISA allows them. Without these instructions, the precision bf16
/// is slower than fp32. On Arm, returns false, because kernels do not use Arm's
/// bfloat16 instructions.
bool has_bf16();

/// Returns the function for kernel_isa(): `avx512`, `avx2`, or `base` for all other
/// instruction sets.
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

/// Expands to a pointer to the version of `function` for kernel_isa(). `type` is the
/// type of the pointer. The function must exist for all instruction sets of the
/// processor.
#if defined(__x86_64__)
#define TANDEM_FOR_ISA(type, function) \
  ::tandem::for_isa<type>(&avx512::function, &avx2::function, &base::function)
#elif defined(__aarch64__)
#define TANDEM_FOR_ISA(type, function) static_cast<type>(&neon::function)
#else
#define TANDEM_FOR_ISA(type, function) static_cast<type>(&base::function)
#endif

}  // namespace tandem
