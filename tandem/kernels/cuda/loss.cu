#include "tandem/kernels/cuda/loss.h"

#include <cmath>
#include <limits>

#include "tandem/kernels/cuda/device.h"
#include "tandem/kernels/cuda/reduce.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 1024;
constexpr unsigned kWarps = kThreads / kWarpSize;
constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The outputs of one sample, which a warp reads: a lane has every 32nd column.
template <typename T>
struct Row {
  const T* values;
  int64_t width;

  template <typename Body>
  __device__ void for_each_column(Body&& body) const {
    for (int64_t j = threadIdx.x % kWarpSize; j < width; j += kWarpSize) {
      body(j);
    }
  }

  template <typename Term>
  __device__ T sum(Term&& term) const {
    T own = 0;
    for_each_column([&](int64_t j) { own += term(j); });
    return warp_sum(own);
  }

  __device__ T largest() const {
    auto own = static_cast<T>(-kInfinity);
    for_each_column([&](int64_t j) { own = values[j] > own ? values[j] : own; });
    return warp_max(own);
  }

  // Whether the target is the first of the largest.
  __device__ bool is_correct(T most, int64_t target) const {
    int before = 0;
    for_each_column(
        [&](int64_t j) { before = j < target && values[j] == most ? 1 : before; });
    return __ballot_sync(kAllLanes, before) == 0 && values[target] == most;
  }
};

// Writes the gradient where there is one; returns the loss, to all lanes.
template <typename T>
__device__ double nll(const Row<T>& row, int64_t target, T factor, T* grad) {
  if (grad != nullptr) {
    row.for_each_column([&](int64_t j) { grad[j] = j == target ? -factor : T(0); });
  }
  return -row.values[target];
}

template <typename T>
__device__ double cross_entropy(
    const Row<T>& row, T most, int64_t target, T factor, T* grad) {
  const T sum = row.sum([&](int64_t j) { return std::exp(row.values[j] - most); });
  if (grad != nullptr) {
    const T scale = factor / sum;
    row.for_each_column([&](int64_t j) {
      grad[j] = scale * std::exp(row.values[j] - most) - (j == target ? factor : T(0));
    });
  }
  return most + std::log(sum) - row.values[target];
}

// With p the softmax: p * (g - sum of p * g), where g = softmax(p) - target.
template <typename T>
__device__ double softmax_cross_entropy(
    const Row<T>& row, T most, int64_t target, T factor, T* grad) {
  const T scale =
      1 / row.sum([&](int64_t j) { return std::exp(row.values[j] - most); });
  const auto p = [&](int64_t j) { return scale * std::exp(row.values[j] - most); };
  const T sum = row.sum([&](int64_t j) { return std::exp(p(j)); });
  if (grad != nullptr) {
    const auto g = [&](int64_t j) {
      return std::exp(p(j)) / sum - (j == target ? T(1) : T(0));
    };
    const T mean = row.sum([&](int64_t j) { return p(j) * g(j); });
    row.for_each_column([&](int64_t j) { grad[j] = factor * p(j) * (g(j) - mean); });
  }
  return std::log(sum) - p(target);
}

template <typename T>
__device__ void write_log_softmax(const Row<T>& row, T most, T* to) {
  const T log =
      std::log(row.sum([&](int64_t j) { return std::exp(row.values[j] - most); }));
  row.for_each_column([&](int64_t j) { to[j] = row.values[j] - most - log; });
}

template <typename T>
__device__ T factor_of(const LossWeight& weight) {
  return static_cast<T>(
      *weight.weight * (weight.scale == nullptr ? 1.0 : double{*weight.scale}));
}

// Adds all threads' parts to the sums. All threads of the only block call it.
template <typename T>
__device__ void add_up(double loss, double correct, int64_t samples, double* sums) {
  __shared__ double losses[kWarps];
  __shared__ double counts[kWarps];
  loss = block_sum(loss, losses);
  correct = block_sum(correct, counts);
  if (threadIdx.x == 0) {
    const bool too_large = sizeof(T) == sizeof(float) && loss > kLargestFloat;
    sums[0] += too_large ? kInfinity : loss;
    sums[1] += correct;
    sums[2] += static_cast<double>(samples);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) class_loss_kernel(
    LossKind kind, int64_t samples, int64_t classes, const T* __restrict__ output,
    const int64_t* __restrict__ targets, LossWeight weight, double* sums,
    T* __restrict__ grads, T* __restrict__ log_softmax) {
  const T factor = grads == nullptr ? T(0) : factor_of<T>(weight);
  // Of this warp, in its first lane.
  double loss = 0;
  double correct = 0;
  for (int64_t i = threadIdx.x / kWarpSize; i < samples; i += kWarps) {
    const Row<T> row{output + i * classes, classes};
    T* grad = grads == nullptr ? nullptr : grads + i * classes;
    const int64_t target = targets[i];
    const T most = row.largest();
    if (log_softmax != nullptr) {
      write_log_softmax(row, most, log_softmax + i * classes);
    }
    double own = kNan;
    if (target < 0 || target >= classes) {
      if (grad != nullptr) {
        row.for_each_column([&](int64_t j) { grad[j] = 0; });
      }
    } else {
      own = kind == LossKind::nll ? nll(row, target, factor, grad)
            : kind == LossKind::softmax_cross_entropy
                ? softmax_cross_entropy(row, most, target, factor, grad)
                : cross_entropy(row, most, target, factor, grad);
      correct += row.is_correct(most, target) && threadIdx.x % kWarpSize == 0 ? 1 : 0;
    }
    loss += threadIdx.x % kWarpSize == 0 ? own : 0;
  }
  add_up<T>(loss, correct, samples, sums);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) squared_loss_kernel(
    int64_t samples, int64_t elements, const T* __restrict__ output,
    const T* __restrict__ targets, LossWeight weight, double* sums,
    T* __restrict__ grad) {
  const T factor = grad == nullptr ? T(0) : factor_of<T>(weight);
  double loss = 0;
  for (int64_t i = threadIdx.x; i < samples * elements; i += kThreads) {
    const T error = output[i] - targets[i];
    loss += static_cast<double>(error) * error;
    if (grad != nullptr) {
      grad[i] = 2 * factor * error;
    }
  }
  add_up<T>(loss, 0, samples, sums);
}

}  // namespace

template <typename T>
void class_loss(
    LossKind kind, int64_t samples, int64_t classes, const T* output,
    const int64_t* targets, const LossWeight& weight, double* sums, T* grad,
    T* log_softmax, Stream stream) {
  if (samples > 0) {
    launch(
        "class_loss", class_loss_kernel<T>, 1, kThreads, 0, stream, kind, samples,
        classes, output, targets, weight, sums, grad, log_softmax);
  }
}

template <typename T>
void squared_loss(
    int64_t samples, int64_t elements, const T* output, const T* targets,
    const LossWeight& weight, double* sums, T* grad, Stream stream) {
  if (samples > 0) {
    launch(
        "squared_loss", squared_loss_kernel<T>, 1, kThreads, 0, stream, samples,
        elements, output, targets, weight, sums, grad);
  }
}

template void class_loss(
    LossKind, int64_t, int64_t, const float*, const int64_t*, const LossWeight&,
    double*, float*, float*, Stream);
template void class_loss(
    LossKind, int64_t, int64_t, const double*, const int64_t*, const LossWeight&,
    double*, double*, double*, Stream);
template void squared_loss(
    int64_t, int64_t, const float*, const float*, const LossWeight&, double*, float*,
    Stream);
template void squared_loss(
    int64_t, int64_t, const double*, const double*, const LossWeight&, double*, double*,
    Stream);

}  // namespace tandem::cuda
