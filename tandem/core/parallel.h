#pragma once

#include <cstdint>
#include <functional>

namespace tandem {

/// Divides [begin, end) among the threads of this rank (`--threads`,
/// `at::get_num_threads()`). Calls `part(first, last)` for each part, at most one per
/// thread, and returns when all calls are done.
///
/// If the loop has at most `grain` indices, or if the call is nested in another
/// parallel_for(), runs on the calling thread only. Rethrows the first exception of a
/// part.
///
/// The parts depend on the number of threads. To get sums whose bits do not depend on
/// the number of threads, sum over parts of fixed size.
///
/// Wraps LibTorch's `at::parallel_for()`, which is a plain loop in sources compiled
/// without OpenMP. Only parallel.cpp is compiled with OpenMP.
void parallel_for(
    int64_t begin, int64_t end, int64_t grain,
    const std::function<void(int64_t first, int64_t last)>& part);

/// Calls `body(i)` for each i in [0, count) by parallel_for().
template <typename Body>
void parallel_for_each(int64_t count, int64_t grain, const Body& body) {
  parallel_for(0, count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      body(i);
    }
  });
}

}  // namespace tandem
