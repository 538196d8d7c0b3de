#include "tandem/kernels/cuda/linear.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "tandem/kernels/cuda/dropout_block.h"
#include "tandem/kernels/cuda/tile_dispatch.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kTileSide = 64;
// About as many as the multiprocessors of a large GPU.
constexpr int64_t kBlocks = 128;
constexpr int64_t kDepthOfPart = 128;
// Parts are whole stages.
constexpr int64_t kDeepestStage = 32;

// How k is divided among blocks.
struct Parts {
  int64_t count;
  // Of each; the last may have less.
  int64_t depth;
};

Parts parts_of(int64_t rows, int64_t columns, int64_t depth) {
  const int64_t tiles =
      int64_t{blocks_of(rows, kTileSide)} * blocks_of(columns, kTileSide);
  const int64_t most = std::max(int64_t{1}, depth / kDepthOfPart);
  const int64_t wanted =
      std::min(most, std::max(int64_t{1}, kBlocks / std::max(int64_t{1}, tiles)));
  const int64_t each =
      int64_t{blocks_of(depth, wanted * kDeepestStage)} * kDeepestStage;
  return {std::max(int64_t{1}, int64_t{blocks_of(depth, each)}), each};
}

// One of the matrices of a product: its lines are rows of a, or columns of b.
template <typename T>
struct Operand {
  const T* values;
  // Of the ReLU behind what `values` is the gradient of; or null.
  const T* relu_output;
  // Of the dropout behind that ReLU.
  T scale;
  int lines;
  // How far apart lines are, where values of k lie side by side; or values of k, where
  // lines do.
  int stride;
  // One more line, of ones.
  bool ones;
};

// What becomes of a sum before it is written.
template <typename T>
struct Finish {
  // For each column; or null.
  const T* bias;
  bool relu;
  // A row is a sample, and a column an element.
  DropoutDecisions dropout;
  T scale;
};

// Where sums go: that of (row, column) to row * row_step + column * column_step.
template <typename T>
struct Target {
  T* values;
  int64_t row_step;
  int64_t column_step;
  int64_t part_step;
  Finish<T> finish;
  bool accumulate;
  // Of the row of ones, a value for each column; or null.
  T* of_ones;
};

// c = a * b.
template <typename T>
struct Product {
  Operand<T> a;
  Operand<T> b;
  int depth;
  int depth_of_part;
  Target<T> target;
};

template <typename T, unsigned count, typename ValueOf>
__device__ __forceinline__ void fetch_values(
    const Operand<T>& operand, T (&values)[count], ValueOf&& value_of) {
  TANDEM_UNROLL
  for (unsigned i = 0; i < count; ++i) {
    values[i] = value_of(operand.values, i);
  }
  if (operand.relu_output != nullptr) {
    close_gates(values, [&](unsigned i) { return value_of(operand.relu_output, i); });
  }
  if (operand.scale != T(1)) {
    TANDEM_UNROLL
    for (unsigned i = 0; i < count; ++i) {
      values[i] *= operand.scale;
    }
  }
}

template <typename T>
Operand<T> operand_of(
    const T* values, const T* relu_output, double scale, int64_t lines,
    int64_t stride) {
  return {
      values,
      relu_output,
      static_cast<T>(scale),
      static_cast<int>(lines),
      static_cast<int>(stride),
      false};
}

// For lines whose values of k lie side by side: a thread has one word of every
// so-many'th line, so that neighbouring threads read neighbouring values.
template <typename Tile, typename Arithmetic, unsigned kLines>
class AlongK {
 public:
  using T = typename Arithmetic::Value;
  using Word = typename Arithmetic::Word;
  static constexpr unsigned kPerWord = Arithmetic::kPerWord;
  static constexpr unsigned kStep = kTileThreads / Tile::kWords;
  static constexpr unsigned kWords = kLines / kStep;

  __device__ AlongK(const Operand<T>& operand, unsigned first_line)
      : operand_(operand), line_(first_line + threadIdx.x / Tile::kWords) {}

  __device__ __forceinline__ void fetch(unsigned first, unsigned end) {
    first += threadIdx.x % Tile::kWords * kPerWord;
    fetch_values(operand_, values_, [&](const T* values, unsigned i) {
      const unsigned line = line_ + i / kPerWord * kStep;
      const unsigned k = first + i % kPerWord;
      return line < static_cast<unsigned>(operand_.lines) && k < end
                 ? values[line * static_cast<unsigned>(operand_.stride) + k]
                 : T(0);
    });
  }

  __device__ __forceinline__ void store(Word* lines) const {
    lines += threadIdx.x / Tile::kWords * Tile::kStride + threadIdx.x % Tile::kWords;
    TANDEM_UNROLL
    for (unsigned i = 0; i < kWords; ++i) {
      lines[i * kStep * Tile::kStride] = Arithmetic::word(values_ + i * kPerWord);
    }
  }

 private:
  const Operand<T>& operand_;
  unsigned line_;
  T values_[kWords * kPerWord];
};

// For values of k whose lines lie side by side: a thread has a part of one line.
template <typename Tile, typename Arithmetic, unsigned kLines>
class AcrossK {
 public:
  using T = typename Arithmetic::Value;
  using Word = typename Arithmetic::Word;
  static constexpr unsigned kPerWord = Arithmetic::kPerWord;
  static constexpr unsigned kValues = Tile::kDepth * kLines / kTileThreads;

  __device__ AcrossK(const Operand<T>& operand, unsigned first_line)
      : operand_(operand), line_(first_line + threadIdx.x % kLines) {}

  __device__ __forceinline__ void fetch(unsigned first, unsigned end) {
    first += threadIdx.x / kLines * kValues;
    const auto lines = static_cast<unsigned>(operand_.lines);
    const T outside = operand_.ones && line_ == lines ? T(1) : T(0);
    fetch_values(operand_, values_, [&](const T* values, unsigned i) {
      const unsigned k = first + i;
      return k >= end ? T(0)
             : line_ < lines
                 ? values[k * static_cast<unsigned>(operand_.stride) + line_]
                 : outside;
    });
  }

  __device__ __forceinline__ void store(Word* lines) const {
    constexpr unsigned kInVector = kVectorBytes / sizeof(Word);
    lines += threadIdx.x % kLines * Tile::kStride +
             threadIdx.x / kLines * (kValues / kPerWord);
    TANDEM_UNROLL
    for (unsigned i = 0; i < kValues / kPerWord; i += kInVector) {
      Vector<Word> vector;
      TANDEM_UNROLL
      for (unsigned w = 0; w < kInVector; ++w) {
        vector.words[w] = Arithmetic::word(values_ + (i + w) * kPerWord);
      }
      *reinterpret_cast<Vector<Word>*>(lines + i) = vector;
    }
  }

 private:
  const Operand<T>& operand_;
  unsigned line_;
  T values_[kValues];
};

template <bool along_k, typename Tile, typename Arithmetic, unsigned kLines>
using Lines = std::conditional_t<
    along_k, AlongK<Tile, Arithmetic, kLines>, AcrossK<Tile, Arithmetic, kLines>>;

template <typename Tile, typename Arithmetic, bool a_along_k, bool b_along_k>
class MatrixSource {
 public:
  using Word = typename Arithmetic::Word;

  __device__ explicit MatrixSource(const Product<typename Arithmetic::Value>& product)
      : a_(product.a, blockIdx.x * Tile::kRows),
        b_(product.b, blockIdx.y * Tile::kColumns) {
    const auto each = static_cast<unsigned>(product.depth_of_part);
    const auto depth = static_cast<unsigned>(product.depth);
    begin_ = blockIdx.z * each;
    end_ = begin_ + each < depth ? begin_ + each : depth;
  }

  __device__ unsigned stages() const {
    return Tile::stages(static_cast<int>(end_ - begin_));
  }
  __device__ void prepare(unsigned) {}
  __device__ __forceinline__ void fetch(unsigned stage) {
    a_.fetch(begin_ + stage * Tile::kDepth, end_);
    b_.fetch(begin_ + stage * Tile::kDepth, end_);
  }
  __device__ __forceinline__ void store(Word* a, Word* b) const {
    a_.store(a);
    b_.store(b);
  }

 private:
  Lines<a_along_k, Tile, Arithmetic, Tile::kRows> a_;
  Lines<b_along_k, Tile, Arithmetic, Tile::kColumns> b_;
  unsigned begin_;
  unsigned end_;
};

template <typename T>
__device__ __forceinline__ T
finished(const Finish<T>& finish, T sum, int64_t row, int64_t column) {
  const T biased = finish.bias == nullptr ? sum : sum + finish.bias[column];
  const T value = finish.relu && biased < 0 ? T(0) : biased;
  if (finish.dropout.place == nullptr) {
    return value;
  }
  return value * (is_kept(finish.dropout, row, column) ? finish.scale : T(0));
}

template <typename Tile, typename T>
__device__ __forceinline__ void write_sums(
    const Product<T>& product, const Sums<T>& sums) {
  const Target<T>& target = product.target;
  for_each_row<Tile>(sums, [&](unsigned in_tile, const T(&of_row)[8]) {
    const auto row = static_cast<int>(blockIdx.x * Tile::kRows + in_tile);
    T* place = target.values + blockIdx.z * target.part_step + row * target.row_step;
    int64_t step = target.column_step;
    if (row >= product.a.lines) {
      place = product.a.ones && row == product.a.lines ? target.of_ones : nullptr;
      step = 1;
    }
    if (place == nullptr) {
      return;
    }
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      const auto column =
          static_cast<int>(blockIdx.y * Tile::kColumns + column_of<Tile>(j));
      if (column < product.b.lines) {
        const T value = finished(target.finish, of_row[j], row, column);
        T& to = place[column * step];
        to = target.accumulate ? to + value : value;
      }
    }
  });
}

// Blocks: tiles of rows x tiles of columns x parts of k.
template <typename Tile, typename Arithmetic, bool a_along_k, bool b_along_k>
__global__ void __launch_bounds__(
    kTileThreads, blocks_per_processor<Tile, Arithmetic>())
    product_kernel(Product<typename Arithmetic::Value> product) {
  auto* shared = dynamic_shared<typename Tile::Word>();
  MatrixSource<Tile, Arithmetic, a_along_k, b_along_k> source(product);
  Sums<typename Arithmetic::Value> sums = {};
  multiply_stages<Tile, Arithmetic>(source, source.stages(), shared, sums);
  write_sums<Tile>(product, sums);
}

// A thread adds up the parts of one result.
template <typename T>
__global__ void __launch_bounds__(kThreads) add_parts_kernel(
    int64_t parts, int64_t count, int64_t columns, const T* __restrict__ sums,
    Finish<T> finish, T* __restrict__ out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) {
    return;
  }
  T sum = 0;
  for (int64_t part = 0; part < parts; ++part) {
    sum += sums[part * count + i];
  }
  out[i] = finished(finish, sum, i / columns, i % columns);
}

template <bool a_along_k, bool b_along_k, typename T>
void launch_product(
    const char* name, Products products, const Product<T>& product, int64_t parts,
    Stream stream) {
  const int64_t rows = int64_t{product.a.lines} + (product.a.ones ? 1 : 0);
  with_tile<T>(products, product.b.lines, [&](auto tile, auto arithmetic) {
    using Tile = decltype(tile);
    using Arithmetic = decltype(arithmetic);
    launch_tiles<Arithmetic>(
        name, product_kernel<Tile, Arithmetic, a_along_k, b_along_k>,
        {blocks_of(rows, Tile::kRows), blocks_of(product.b.lines, Tile::kColumns),
         static_cast<unsigned>(parts)},
        Tile::kSharedBytes, stream, product);
  });
}

// Rows x columns of results, one row after the other, of a product whose depth may be
// divided.
template <bool b_along_k, typename T>
void launch_divided(
    const char* name, Products products, Product<T> product, T* workspace,
    Stream stream) {
  const int64_t columns = product.b.lines;
  const int64_t count = product.a.lines * columns;
  if (count == 0) {
    return;
  }
  const Parts parts = parts_of(product.a.lines, columns, product.depth);
  product.depth_of_part = static_cast<int>(parts.depth);
  product.target.row_step = columns;
  product.target.column_step = 1;
  if (parts.count == 1) {
    launch_product<true, b_along_k>(name, products, product, 1, stream);
    return;
  }
  const Target<T> target = product.target;
  product.target.values = workspace;
  product.target.part_step = count;
  product.target.finish = {};
  launch_product<true, b_along_k>(name, products, product, parts.count, stream);
  launch(
      "linear_parts", add_parts_kernel<T>, blocks_of(count, kThreads), kThreads, 0,
      stream, parts.count, count, columns, static_cast<const T*>(workspace),
      target.finish, target.values);
}

int64_t workspace_of(int64_t rows, int64_t columns, int64_t depth) {
  const Parts parts = parts_of(rows, columns, depth);
  return parts.count == 1 ? 0 : parts.count * rows * columns;
}

}  // namespace

void check_linear(const LinearShape& s) {
  // CUDA's grids have fewer than 2^16 tiles of columns.
  constexpr int64_t kMostValues = int64_t{1} << 21;
  const bool is_known = s.samples >= 0 && s.in >= 1 && s.out >= 1;
  if (!is_known || s.in >= kMostValues || s.out >= kMostValues ||
      !is_small(s.samples, s.in) || !is_small(s.samples, s.out) ||
      !is_small(s.in + 1, s.out)) {
    throw ConfigError(
        "[cuda] a linear layer of " + std::to_string(s.samples) + " samples from " +
        std::to_string(s.in) + " to " + std::to_string(s.out) +
        " values is not possible here; a sample is to have inputs and outputs, fewer "
        "than 2^21 each, and those of all samples and the weights are to be fewer than "
        "2^31; change the model or --batch-size");
  }
}

int64_t linear_workspace(const LinearShape& s) {
  return std::max(
      workspace_of(s.samples, s.out, s.in), workspace_of(s.samples, s.in, s.out));
}

template <typename T>
void linear(
    const LinearShape& shape, Products products, const T* input, const T* weight,
    const T* bias, const ReluAndDropout& behind, T* workspace, T* output,
    Stream stream) {
  check_linear(shape);
  Product<T> product{};
  product.a = operand_of<T>(input, nullptr, 1, shape.samples, shape.in);
  product.b = operand_of<T>(weight, nullptr, 1, shape.out, shape.in);
  product.depth = static_cast<int>(shape.in);
  product.target.values = output;
  product.target.finish = {
      bias,
      behind.relu,
      {behind.place, behind.layer, shape.samples, shape.out,
       dropout_threshold(behind.p)},
      static_cast<T>(behind.scale())};
  launch_divided<true>("linear", products, product, workspace, stream);
}

template <typename T>
void linear_backward_data(
    const LinearShape& shape, Products products, const T* grad_output, const T* output,
    double scale, const T* weight, T* workspace, T* grad_input, Stream stream) {
  check_linear(shape);
  Product<T> product{};
  product.a = operand_of(grad_output, output, scale, shape.samples, shape.out);
  product.b = operand_of<T>(weight, nullptr, 1, shape.in, shape.in);
  product.depth = static_cast<int>(shape.out);
  product.target.values = grad_input;
  launch_divided<false>("linear_data", products, product, workspace, stream);
}

template <typename T>
void linear_backward_weights(
    const LinearShape& shape, Products products, const T* input, const T* grad_output,
    const T* output, double scale, bool accumulate, T* grad_weight, T* grad_bias,
    Stream stream) {
  check_linear(shape);
  Product<T> product{};
  product.a = operand_of<T>(input, nullptr, 1, shape.in, shape.in);
  product.a.ones = true;
  product.b = operand_of(grad_output, output, scale, shape.out, shape.out);
  product.depth = static_cast<int>(shape.samples);
  product.depth_of_part = product.depth;
  product.target.values = grad_weight;
  product.target.row_step = 1;
  product.target.column_step = shape.in;
  product.target.accumulate = accumulate;
  product.target.of_ones = grad_bias;
  launch_product<false, false>("linear_weights", products, product, 1, stream);
}

template void linear(
    const LinearShape&, Products, const float*, const float*, const float*,
    const ReluAndDropout&, float*, float*, Stream);
template void linear(
    const LinearShape&, Products, const double*, const double*, const double*,
    const ReluAndDropout&, double*, double*, Stream);
template void linear_backward_data(
    const LinearShape&, Products, const float*, const float*, double, const float*,
    float*, float*, Stream);
template void linear_backward_data(
    const LinearShape&, Products, const double*, const double*, double, const double*,
    double*, double*, Stream);
template void linear_backward_weights(
    const LinearShape&, Products, const float*, const float*, const float*, double,
    bool, float*, float*, Stream);
template void linear_backward_weights(
    const LinearShape&, Products, const double*, const double*, const double*, double,
    bool, double*, double*, Stream);

}  // namespace tandem::cuda
