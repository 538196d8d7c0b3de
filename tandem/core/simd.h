#pragma once

/// Compiles a function for several instruction sets; the fastest that the CPU has
/// is chosen when the program is loaded. Results do not depend on it in files
/// compiled with -ffp-contract=off, or that compute with integers only.
///
/// Where that is impossible, only the portable version is compiled: thread sanitizer
/// crashes in the choice, and clang 14 makes its symbols global.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TANDEM_HAS_SIMD 1
#define TANDEM_SIMD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TANDEM_SIMD_CLONES
#endif

#define TANDEM_ALWAYS_INLINE inline __attribute__((always_inline))

/// Stands before a loop over the elements of arrays that are identical or disjoint,
/// never partly overlapping: no element depends on an earlier one, so the compiler need
/// not check.
#if defined(__clang__)
#define TANDEM_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define TANDEM_ELEMENTWISE _Pragma("GCC ivdep")
#endif
