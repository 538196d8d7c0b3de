#include "tandem/exec/compiled/pool_kernels.h"

#include <algorithm>

#include "tandem/core/parallel.h"
#include "tandem/kernels/isa.h"
#include "tandem/kernels/pool_loops.h"

namespace tandem {

namespace {

// The least number of outputs that a thread takes.
constexpr int64_t kGrain = 16'384;

// Calls `plane(input offset, output offset)` for every plane, on all threads.
template <typename Plane>
void for_each_plane(const PoolShape& s, const Plane& plane) {
  const int64_t in_size = s.height * s.width * s.lanes;
  const int64_t out_size = s.out_height() * s.out_width() * s.lanes;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, out_size));
  parallel_for(0, s.outer, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      plane(i * in_size, i * out_size);
    }
  });
}

}  // namespace

template <typename T>
void max_pool(const PoolShape& shape, bool relu, const T* in, T* out, uint8_t* which) {
  void (*const plane)(const PoolShape&, bool, const T*, T*, uint8_t*) =
      TANDEM_FOR_ISA(decltype(plane), max_pool_plane);
  for_each_plane(shape, [&](int64_t i, int64_t o) {
    plane(shape, relu, in + i, out + o, which + o);
  });
}

template <typename T>
void max_pool_gradient(
    const PoolShape& shape, const uint8_t* which, const T* grad_out, T* grad_in) {
  void (*const plane)(const PoolShape&, const uint8_t*, const T*, T*) =
      TANDEM_FOR_ISA(decltype(plane), spread_plane);
  for_each_plane(shape, [&](int64_t i, int64_t o) {
    plane(shape, which + o, grad_out + o, grad_in + i);
  });
}

template void max_pool(const PoolShape&, bool, const float*, float*, uint8_t*);
template void max_pool(const PoolShape&, bool, const Bf16*, Bf16*, uint8_t*);
template void max_pool_gradient(const PoolShape&, const uint8_t*, const float*, float*);
template void max_pool_gradient(const PoolShape&, const uint8_t*, const Bf16*, Bf16*);

}  // namespace tandem
