#pragma once

#include <string>

#include "tandem/kernels/cuda/device.h"

/// Products of small matrices that a warp computes together, c += a * b: 16 x 8 from 16
/// x 8 and 8 x 8 values of tf32, or from 16 x 16 and 16 x 8 of bf16. Sums are float32.
/// They are PTX's mma.sync.aligned.m16n8k8 of tf32 and m16n8k16 of bf16, which need
/// compute capability 8.0. All 32 lanes call one at the same line.
///
/// Each lane holds a fragment of every matrix ("Matrix Fragments for mma.m16n8k8" and
/// "...m16n8k16" in the PTX ISA). With g = lane / 4 and t = lane % 4, where a word of
/// 32 bits is one value of tf32, or two of bf16 with neighbouring k, the lower k in the
/// lower half, so that each matrix has eight words along k:
///
///   a[0]: row g,     word t         b[0]: word t,     column g
///   a[1]: row g + 8, word t         b[1]: word t + 4, column g
///   a[2]: row g,     word t + 4
///   a[3]: row g + 8, word t + 4
///
///   c[0]: row g,     column 2t      c[2]: row g + 8, column 2t
///   c[1]: row g,     column 2t + 1  c[3]: row g + 8, column 2t + 1
///
/// The words below are here for nvcc; tests find those of the emulator
/// (tests/cuda/emulator/warp_matrix.h).

#if defined(__CUDACC__)

namespace tandem::cuda {

/// The nearest value of tf32, in the upper 19 bits; ties away from zero.
__device__ __forceinline__ uint32_t to_tf32(float value) {
  uint32_t word = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(value));
#else
  __trap();
#endif
  return word;
}

/// The nearest values of bf16, ties to even; `low` in the lower half.
__device__ __forceinline__ uint32_t to_bf16_pair(float low, float high) {
  uint32_t word = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#else
  __trap();
#endif
  return word;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define TANDEM_MMA(shape_and_types)                                               \
  asm volatile("mma.sync.aligned." shape_and_types                                \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
#define TANDEM_MMA(shape_and_types) __trap()
#endif

__device__ __forceinline__ void mma_tf32(
    float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  TANDEM_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
}

__device__ __forceinline__ void mma_bf16(
    float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  TANDEM_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
}

#undef TANDEM_MMA

}  // namespace tandem::cuda

#endif

namespace tandem::cuda {

/// Throws ConfigError where the device would run code of `kernel` for GPUs that have no
/// such products: there it stops (a trap), and later calls fail too.
template <typename... Parameters>
void require_matrix_products(const char* name, void (*kernel)(Parameters...)) {
  const int architecture = code_architecture(name, kernel);
  if (architecture < 80) {
    throw ConfigError(
        std::string("[cuda] kernel ") + name + " was compiled for compute capability " +
        std::to_string(architecture / 10) + "." + std::to_string(architecture % 10) +
        ", and products of tf32 and bf16 need 8.0; compute in float32");
  }
}

}  // namespace tandem::cuda
