#include "tandem/kernels/cuda/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tandem/kernels/cuda/reduce.h"
#include "tandem/kernels/cuda/tile_dispatch.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpSize;
constexpr int64_t kValuesOfPart = 8 * kThreads;
constexpr int64_t kMostParts = 64;
// Doubles that a part leaves in the workspace.
constexpr unsigned kSums = 2;

// A block's part of a channel. Blocks: parts x channels.
struct Channel {
  int channels;
  int area;
  // Of the channel, and of a part; the last may have fewer.
  int values;
  int values_of_part;

  __device__ int begin_of(unsigned part) const {
    return static_cast<int>(part) * values_of_part;
  }
  __device__ int end_of(unsigned part) const {
    const int begin = begin_of(part);
    return values - begin < values_of_part ? values : begin + values_of_part;
  }
  __device__ int count_of(unsigned part) const {
    return end_of(part) - begin_of(part);
  }

  // Calls body(place) for each of this thread's values in the block's part.
  template <typename Body>
  __device__ __forceinline__ void for_each_place(Body&& body) const {
    const int end = end_of(blockIdx.x);
    for (int i = begin_of(blockIdx.x) + static_cast<int>(threadIdx.x); i < end;
         i += static_cast<int>(kThreads)) {
      const int image = i / area;
      body(
          (image * channels + static_cast<int>(blockIdx.y)) * area +
          (i - image * area));
    }
  }

  // Where a part of this block's channel has its sums.
  __device__ int64_t sums_of(unsigned part) const {
    return (int64_t{blockIdx.y} * gridDim.x + part) * kSums;
  }
};

// The same in all threads of the block, which all call it.
__device__ __forceinline__ double sum_for_all(double value) {
  __shared__ double parts[kWarps];
  __shared__ double total;
  const double sum = block_sum(value, parts);
  if (threadIdx.x == 0) {
    total = sum;
  }
  // The next one's total is written behind its first barrier.
  __syncthreads();
  return total;
}

// The sum over a channel's parts, in their order within each thread. All threads of the
// block call it.
template <typename Term>
__device__ __forceinline__ double sum_of_parts(Term&& term) {
  double own = 0;
  for (unsigned part = threadIdx.x; part < gridDim.x; part += kThreads) {
    own += term(part);
  }
  return sum_for_all(own);
}

template <typename T>
__device__ __forceinline__ T behind_relu(T value, bool relu) {
  return relu && value < 0 ? T(0) : value;
}

// Leaves a part's mean, and its sum of squared differences from that.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(Channel channel, const T* __restrict__ in, double* sums) {
  double own = 0;
  channel.for_each_place([&](int place) { own += static_cast<double>(in[place]); });
  const double mean = sum_for_all(own) / channel.count_of(blockIdx.x);
  own = 0;
  channel.for_each_place([&](int place) {
    const double difference = static_cast<double>(in[place]) - mean;
    own += difference * difference;
  });
  const double squares = sum_for_all(own);
  if (threadIdx.x == 0) {
    sums += channel.sums_of(blockIdx.x);
    sums[0] = mean;
    sums[1] = squares;
  }
}

template <typename T>
__device__ void move_on(
    const RunningStatistics<T>& running, int values, double mean, double squares) {
  const auto move = [&](T* average, double value) {
    const double before = static_cast<double>(average[blockIdx.y]);
    average[blockIdx.y] =
        static_cast<T>((1 - running.momentum) * before + running.momentum * value);
  };
  move(running.mean, mean);
  move(running.variance, squares / (values - 1));
}

// Moments and the output. Without values there is one block for each channel, which
// has no part.
template <typename T>
__global__ void __launch_bounds__(kThreads) normalise_kernel(
    Channel channel, BatchNormParameters<T> parameters, const T* __restrict__ in,
    RunningStatistics<T> running, const double* sums, double* saved,
    T* __restrict__ out) {
  if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0 &&
      running.batches != nullptr) {
    *running.batches += 1;
  }
  if (channel.values == 0) {
    return;
  }
  const double mean = sum_of_parts([&](unsigned part) {
                        return channel.count_of(part) * sums[channel.sums_of(part)];
                      }) /
                      channel.values;
  const double squares = sum_of_parts([&](unsigned part) {
    const double apart = sums[channel.sums_of(part)] - mean;
    return sums[channel.sums_of(part) + 1] + channel.count_of(part) * apart * apart;
  });
  const double factor = 1 / std::sqrt(squares / channel.values + parameters.epsilon);
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    saved[2 * blockIdx.y] = mean;
    saved[2 * blockIdx.y + 1] = factor;
    move_on(running, channel.values, mean, squares);
  }
  const double scale = factor * parameters.weight[blockIdx.y];
  const double bias = parameters.bias[blockIdx.y];
  channel.for_each_place([&](int place) {
    const auto value = static_cast<T>((in[place] - mean) * scale + bias);
    out[place] = behind_relu(value, parameters.relu);
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) evaluation_kernel(
    Channel channel, BatchNormParameters<T> parameters, const T* __restrict__ in,
    const T* running_mean, const T* running_variance, T* __restrict__ out) {
  const double mean = running_mean[blockIdx.y];
  const double variance = running_variance[blockIdx.y];
  const double scale =
      parameters.weight[blockIdx.y] / std::sqrt(variance + parameters.epsilon);
  const double bias = parameters.bias[blockIdx.y];
  channel.for_each_place([&](int place) {
    const auto value = static_cast<T>((in[place] - mean) * scale + bias);
    out[place] = behind_relu(value, parameters.relu);
  });
}

// What comes back to a batch norm.
template <typename T>
struct Backward {
  const T* weight;
  const T* in;
  const double* saved;
  const T* grad_out;
  // Of the ReLU; or null.
  const T* out;

  __device__ __forceinline__ double gradient(int place) const {
    return out != nullptr && out[place] <= 0 ? 0.0 : double{grad_out[place]};
  }
  __device__ __forceinline__ double difference(int place) const {
    return in[place] - saved[2 * blockIdx.y];
  }
};

// Leaves a part's sums of gradients, and of gradients times differences from the mean.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gradient_sums_kernel(Channel channel, Backward<T> backward, double* sums) {
  double gradients = 0;
  double products = 0;
  channel.for_each_place([&](int place) {
    const double gradient = backward.gradient(place);
    gradients += gradient;
    products += gradient * backward.difference(place);
  });
  gradients = sum_for_all(gradients);
  products = sum_for_all(products);
  if (threadIdx.x == 0) {
    sums += channel.sums_of(blockIdx.x);
    sums[0] = gradients;
    sums[1] = products;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) gradients_kernel(
    Channel channel, Backward<T> backward, const double* sums,
    BatchNormGradients<T> to) {
  const double factor = channel.values == 0 ? 0 : backward.saved[2 * blockIdx.y + 1];
  const auto sum = [&](unsigned which) {
    return sum_of_parts([&](unsigned part) {
      return channel.values == 0 ? 0 : sums[channel.sums_of(part) + which];
    });
  };
  const double gradients = sum(0);
  const double products = sum(1);
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    const auto put = [&](T& gradient, double value) {
      gradient = static_cast<T>(to.accumulate ? gradient + value : value);
    };
    put(to.weight[blockIdx.y], products * factor);
    put(to.bias[blockIdx.y], gradients);
  }
  if (to.in == nullptr) {
    return;
  }
  const double mean = gradients / channel.values;
  const double slope = products / channel.values * factor * factor;
  const double scale = factor * backward.weight[blockIdx.y];
  channel.for_each_place([&](int place) {
    to.in[place] = static_cast<T>(
        (backward.gradient(place) - mean - backward.difference(place) * slope) * scale);
  });
}

int64_t parts_of(const BatchNormShape& shape) {
  return std::min(kMostParts, int64_t{blocks_of(shape.values(), kValuesOfPart)});
}

Channel channel_of(const BatchNormShape& shape) {
  const int64_t parts = std::max(int64_t{1}, parts_of(shape));
  return {
      static_cast<int>(shape.channels), static_cast<int>(shape.area),
      static_cast<int>(shape.values()),
      static_cast<int>(blocks_of(shape.values(), parts))};
}

// Parts x channels; one part where there are no values.
dim3 blocks_for(const BatchNormShape& shape) {
  return {
      static_cast<unsigned>(std::max(int64_t{1}, parts_of(shape))),
      static_cast<unsigned>(shape.channels)};
}

}  // namespace

void check_batch_norm(const BatchNormShape& s) {
  // CUDA's grids have fewer blocks than this along y.
  constexpr int64_t kMostChannels = 0x10000;
  const bool is_known = s.images >= 0 && s.channels >= 1 && s.area >= 1;
  if (!is_known || s.channels >= kMostChannels ||
      !is_small(s.images, s.channels, s.area)) {
    throw ConfigError(
        "[cuda] a batch norm of " + std::to_string(s.images) + " images of " +
        std::to_string(s.channels) + " channels of " + std::to_string(s.area) +
        " pixels is not possible here; there are to be channels, fewer than 2^16, and "
        "pixels, and fewer than 2^31 values; change the model or --batch-size");
  }
}

int64_t batch_norm_workspace(const BatchNormShape& shape) {
  return parts_of(shape) * shape.channels * kSums;
}

template <typename T>
void batch_norm(
    const BatchNormShape& shape, const BatchNormParameters<T>& parameters, const T* in,
    const RunningStatistics<T>& running, double* workspace, double* saved, T* out,
    Stream stream) {
  check_batch_norm(shape);
  const Channel channel = channel_of(shape);
  if (channel.values > 0) {
    launch(
        "batch_norm_moments", moments_kernel<T>, blocks_for(shape), kThreads, 0, stream,
        channel, in, workspace);
  }
  launch(
      "batch_norm", normalise_kernel<T>, blocks_for(shape), kThreads, 0, stream,
      channel, parameters, in, running, static_cast<const double*>(workspace), saved,
      out);
}

template <typename T>
void batch_norm_evaluation(
    const BatchNormShape& shape, const BatchNormParameters<T>& parameters, const T* in,
    const T* running_mean, const T* running_variance, T* out, Stream stream) {
  check_batch_norm(shape);
  const Channel channel = channel_of(shape);
  if (channel.values > 0) {
    launch(
        "batch_norm_evaluation", evaluation_kernel<T>, blocks_for(shape), kThreads, 0,
        stream, channel, parameters, in, running_mean, running_variance, out);
  }
}

template <typename T>
void batch_norm_backward(
    const BatchNormShape& shape, const T* weight, const T* in, const double* saved,
    const T* grad_out, const T* out, double* workspace,
    const BatchNormGradients<T>& gradients, Stream stream) {
  check_batch_norm(shape);
  const Channel channel = channel_of(shape);
  const Backward<T> backward{weight, in, saved, grad_out, out};
  if (channel.values > 0) {
    launch(
        "batch_norm_gradient_sums", gradient_sums_kernel<T>, blocks_for(shape),
        kThreads, 0, stream, channel, backward, workspace);
  }
  launch(
      "batch_norm_gradients", gradients_kernel<T>, blocks_for(shape), kThreads, 0,
      stream, channel, backward, static_cast<const double*>(workspace), gradients);
}

template void batch_norm(
    const BatchNormShape&, const BatchNormParameters<float>&, const float*,
    const RunningStatistics<float>&, double*, double*, float*, Stream);
template void batch_norm(
    const BatchNormShape&, const BatchNormParameters<double>&, const double*,
    const RunningStatistics<double>&, double*, double*, double*, Stream);
template void batch_norm_evaluation(
    const BatchNormShape&, const BatchNormParameters<float>&, const float*,
    const float*, const float*, float*, Stream);
template void batch_norm_evaluation(
    const BatchNormShape&, const BatchNormParameters<double>&, const double*,
    const double*, const double*, double*, Stream);
template void batch_norm_backward(
    const BatchNormShape&, const float*, const float*, const double*, const float*,
    const float*, double*, const BatchNormGradients<float>&, Stream);
template void batch_norm_backward(
    const BatchNormShape&, const double*, const double*, const double*, const double*,
    const double*, double*, const BatchNormGradients<double>&, Stream);

}  // namespace tandem::cuda
