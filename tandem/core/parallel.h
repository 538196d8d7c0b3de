#pragma once

#include <cstdint>
#include <functional>

namespace tandem {

/// Calls `part(first, last)` for disjoint parts of [begin, end), one per thread of this
/// rank (`--threads`, `at::get_num_threads()`), and returns when all are done.
///
/// Each part has at least `grain` indices, so a small loop runs on the calling thread.
/// A nested call also runs on its calling thread. Rethrows the first exception of a
/// part.
///
/// The parts depend on the number of threads. A caller that sums across indices must
/// choose its own parts, or its bits depend on that number too.
///
/// Wraps LibTorch's `at::parallel_for()`, which is a plain loop in sources compiled
/// without OpenMP. Only parallel.cpp is compiled with OpenMP.
void parallel_for(
    int64_t begin, int64_t end, int64_t grain,
    const std::function<void(int64_t first, int64_t last)>& part);

}  // namespace tandem
