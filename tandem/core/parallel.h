#pragma once

#include <cstdint>
#include <functional>

namespace tandem {

/// Calls `part(first, last)` for parts of `begin` to `end`, one on each of this rank's
/// threads (`--threads`, `at::get_num_threads()`), and returns when all are done. A
/// part has `grain` indices or more, so a small loop stays on the calling thread, as
/// does one inside another.
///
/// The cuts depend on the number of threads: what adds up across indices must cut its
/// sums itself, or its bits depend on them too. The first exception of a part is
/// rethrown here. LibTorch's `at::parallel_for()`, which is a plain loop in every
/// source that is not compiled with OpenMP; of ours only parallel.cpp is.
void parallel_for(
    int64_t begin, int64_t end, int64_t grain,
    const std::function<void(int64_t first, int64_t last)>& part);

}  // namespace tandem
