#include "tandem/comm/reduce_arrays.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <cstring>

#include "tandem/core/bf16.h"
#include "tandem/core/simd.h"

namespace tandem {

namespace {

template <typename T>
TANDEM_ALWAYS_INLINE T add(T a, T b) {
  return a + b;
}
// Adds as unsigned numbers, whose overflow is defined.
template <>
TANDEM_ALWAYS_INLINE int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <>
TANDEM_ALWAYS_INLINE int32_t add(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
template <>
TANDEM_ALWAYS_INLINE Bf16 add(Bf16 a, Bf16 b) {
  return narrow<Bf16>(widen(a) + widen(b));
}

// `to` may be `a` or `b`, because each element is written after both were read.
template <typename T>
TANDEM_ALWAYS_INLINE void add_two(T* to, const T* a, const T* b, int64_t count) {
  TANDEM_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) {
    to[i] = add(a[i], b[i]);
  }
}

template <typename T>
TANDEM_ALWAYS_INLINE void add_two_to_two(
    T* x, T* y, const T* a, const T* b, int64_t count) {
  TANDEM_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) {
    const T sum = add(a[i], b[i]);
    x[i] = sum;
    y[i] = sum;
  }
}

constexpr int64_t kBlock = 512;

template <typename T>
TANDEM_ALWAYS_INLINE void add_block(
    T* const* to, int64_t num_to, const T* const* from, int64_t num_from, int64_t begin,
    int64_t count) {
  T sum[kBlock];
  add_two(sum, from[0] + begin, from[1] + begin, count);
  for (int64_t j = 2; j < num_from; ++j) {
    add_two(sum, sum, from[j] + begin, count);
  }
  for (int64_t j = 0; j < num_to; ++j) {
    std::memcpy(to[j] + begin, sum, static_cast<size_t>(count) * sizeof(T));
  }
}

template <typename T>
TANDEM_ALWAYS_INLINE void add_all(
    T* const* to, int64_t num_to, const T* const* from, int64_t num_from,
    int64_t count) {
  if (num_from == 2 && num_to == 1) {
    add_two(to[0], from[0], from[1], count);
  } else if (num_from == 2 && num_to == 2) {
    add_two_to_two(to[0], to[1], from[0], from[1], count);
  } else {
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t some = std::min(kBlock, count - begin);
      add_block(to, num_to, from, num_from, begin, some);
    }
  }
}

#define TANDEM_ADD_ALL(name, T)                                             \
  TANDEM_SIMD_CLONES void name(                                             \
      T* const* to, int64_t num_to, const T* const* from, int64_t num_from, \
      int64_t count) {                                                      \
    add_all(to, num_to, from, num_from, count);                             \
  }
TANDEM_ADD_ALL(add_floats, float)
TANDEM_ADD_ALL(add_doubles, double)
TANDEM_ADD_ALL(add_bfloat16s, Bf16)
TANDEM_ADD_ALL(add_longs, int64_t)
TANDEM_ADD_ALL(add_ints, int32_t)
#undef TANDEM_ADD_ALL

template <typename T, typename Add>
void add_as(
    const Add& add_arrays, c10::ArrayRef<char*> to, c10::ArrayRef<const char*> from,
    int64_t count) {
  add_arrays(
      reinterpret_cast<T* const*>(to.data()), static_cast<int64_t>(to.size()),
      reinterpret_cast<const T* const*>(from.data()), static_cast<int64_t>(from.size()),
      count);
}

bool add_by_loop(
    at::ScalarType dtype, c10::ArrayRef<char*> to, c10::ArrayRef<const char*> from,
    int64_t count) {
  switch (dtype) {
    case at::kFloat:
      add_as<float>(add_floats, to, from, count);
      return true;
    case at::kDouble:
      add_as<double>(add_doubles, to, from, count);
      return true;
    case at::kBFloat16:
      add_as<Bf16>(add_bfloat16s, to, from, count);
      return true;
    case at::kLong:
      add_as<int64_t>(add_longs, to, from, count);
      return true;
    case at::kInt:
      add_as<int32_t>(add_ints, to, from, count);
      return true;
    default:
      return false;
  }
}

// Reduces with LibTorch, for operations and dtypes that are rarely used.
void reduce_by_tensors(
    ReduceOp op, at::ScalarType dtype, c10::ArrayRef<char*> to,
    c10::ArrayRef<const char*> from, int64_t count) {
  const auto tensor_at = [&](const char* memory) {
    return at::from_blob(
        const_cast<char*>(memory), {count}, at::TensorOptions().dtype(dtype));
  };
  auto total = tensor_at(from[0]).clone();
  for (size_t i = 1; i < from.size(); ++i) {
    reduce_into(total, tensor_at(from[i]), op);
  }
  for (char* memory : to) {
    tensor_at(memory).copy_(total);
  }
}

}  // namespace

void reduce_into(at::Tensor& total, const at::Tensor& next, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      total.add_(next);
      break;
    case ReduceOp::min:
      at::minimum_out(total, total, next);
      break;
    case ReduceOp::max:
      at::maximum_out(total, total, next);
      break;
  }
}

void reduce_arrays(
    ReduceOp op, at::ScalarType dtype, c10::ArrayRef<char*> to,
    c10::ArrayRef<const char*> from, int64_t count) {
  if (op != ReduceOp::sum || !add_by_loop(dtype, to, from, count)) {
    reduce_by_tensors(op, dtype, to, from, count);
  }
}

}  // namespace tandem
