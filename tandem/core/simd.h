#pragma once

/// Compiles a function for several instruction sets. The dynamic linker chooses the
/// fastest version that the CPU can run. All versions give the same results in integer
/// code, and in files compiled with -ffp-contract=off.
///
/// On CPUs other than x86-64, with sanitizers and with clang, only the portable version
/// is compiled. The thread sanitizer crashes while the linker chooses, and clang 14
/// makes the symbols of the versions global.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TANDEM_HAS_SIMD 1
#define TANDEM_SIMD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TANDEM_SIMD_CLONES
#endif

#define TANDEM_ALWAYS_INLINE inline __attribute__((always_inline))

/// Pragma to put before a loop over arrays that are identical or disjoint, never partly
/// overlapping. The compiler then vectorises the loop without a check for overlap.
#if defined(__clang__)
#define TANDEM_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define TANDEM_ELEMENTWISE _Pragma("GCC ivdep")
#endif
