#pragma once

/// Stands before a function that loops on the CPU and kernels on a GPU share: it works
/// on one element and is inlined in both. A source that gives equal bits is compiled
/// without contraction, by -ffp-contract=off here and --fmad=false there.
#if defined(__CUDACC__)
#define TANDEM_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TANDEM_HOST_DEVICE inline __attribute__((always_inline))
#endif
