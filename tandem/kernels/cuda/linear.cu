#include "tandem/kernels/cuda/linear.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "tandem/kernels/cuda/dropout_block.h"
#include "tandem/kernels/cuda/tile_dispatch.h"

namespace tandem::cuda {

namespace {

// About as many as the multiprocessors of a large GPU.
constexpr int64_t kBlocks = 128;
constexpr int64_t kDepthOfPart = 128;

Division divide_where_few(const TileGrid& grid, int64_t depth) {
  const int64_t tiles = std::max(1u, grid.tiles());
  const int64_t most = std::max(int64_t{1}, depth / kDepthOfPart);
  return divide(grid, depth, std::min(most, std::max(int64_t{1}, kBlocks / tiles)));
}

Division divide_forward(const LinearShape& s) {
  return divide_where_few(grid_of(s.samples, s.out, is_narrow(s.out)), s.in);
}
// Its tiles are of the same sides as the weights' gradient's in the same kernel.
Division divide_backward_data(const LinearShape& s) {
  return divide_where_few(grid_of(s.samples, s.in, is_narrow(s.out)), s.out);
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
  TileGrid grid;
  // Of parts, where there are several.
  Workspace<T> workspace;
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
    store_words<Arithmetic>(values_, lines, kStep * Tile::kStride);
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
    lines += threadIdx.x % kLines * Tile::kStride +
             threadIdx.x / kLines * (kValues / kPerWord);
    store_vectors<Arithmetic>(values_, lines);
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

  __device__ MatrixSource(
      const Product<typename Arithmetic::Value>& product, const TilePlace& place)
      : a_(product.a, place.row * Tile::kRows),
        b_(product.b, place.column * Tile::kColumns),
        range_(range_of(place, product.depth_of_part, product.depth)) {}

  __device__ unsigned stages() const {
    return Tile::stages(static_cast<int>(range_.end - range_.begin));
  }
  __device__ void prepare(unsigned) {}
  __device__ __forceinline__ void fetch(unsigned stage) {
    const unsigned first = range_.begin + stage * Tile::kDepth;
    a_.fetch(first, range_.end);
    b_.fetch(first, range_.end);
  }
  __device__ __forceinline__ void store(Word* a, Word* b) const {
    a_.store(a);
    b_.store(b);
  }

 private:
  Lines<a_along_k, Tile, Arithmetic, Tile::kRows> a_;
  Lines<b_along_k, Tile, Arithmetic, Tile::kColumns> b_;
  KRange range_;
};

// Which of the eight columns of a row dropout keeps. Columns j and j + 4 are 16 apart,
// so one block of Philox decides about both.
__device__ __forceinline__ void find_kept(
    const DropoutDecisions& dropout, int64_t row, const int64_t (&columns)[8],
    bool (&kept)[8]) {
  TANDEM_UNROLL
  for (unsigned j = 0; j < 4; ++j) {
    DropoutNumbers numbers;
    if (dropout.place != nullptr) {
      numbers = DropoutNumbers(dropout, row, dropout_block_of(columns[j]));
    }
    const int number = dropout_number_of(columns[j]);
    kept[j] = numbers.keep(number, dropout.threshold);
    kept[j + 4] = numbers.keep(number + 1, dropout.threshold);
  }
}

// Of the columns that there are.
template <typename T>
__device__ __forceinline__ void finish_row(
    const Finish<T>& finish, int64_t row, const int64_t (&columns)[8], int64_t lines,
    T (&values)[8]) {
  bool kept[8];
  find_kept(finish.dropout, row, columns, kept);
  TANDEM_UNROLL
  for (unsigned j = 0; j < 8; ++j) {
    if (finish.bias != nullptr && columns[j] < lines) {
      values[j] += finish.bias[columns[j]];
    }
    if (finish.relu && values[j] < 0) {
      values[j] = 0;
    }
    if (finish.dropout.place != nullptr) {
      values[j] *= kept[j] ? finish.scale : T(0);
    }
  }
}

// `finishes`: as the target says; else sums are written as they are.
template <bool finishes, typename Tile, typename T>
__device__ __forceinline__ void write_sums(
    const Product<T>& product, const TilePlace& at, const Sums<T>& sums) {
  const Target<T>& target = product.target;
  for_each_row<Tile>(sums, [&](unsigned in_tile, const T(&of_row)[8]) {
    const auto row = static_cast<int>(at.row * Tile::kRows + in_tile);
    T* place = target.values + row * target.row_step;
    int64_t step = target.column_step;
    if (row >= product.a.lines) {
      place = product.a.ones && row == product.a.lines ? target.of_ones : nullptr;
      step = 1;
    }
    if (place == nullptr) {
      return;
    }
    int64_t columns[8];
    T values[8];
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      columns[j] = at.column * Tile::kColumns + column_of<Tile>(j);
      values[j] = of_row[j];
    }
    if constexpr (finishes) {
      finish_row(target.finish, row, columns, product.b.lines, values);
    }
    TANDEM_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      if (columns[j] < product.b.lines) {
        T& to = place[columns[j] * step];
        to = target.accumulate ? to + values[j] : values[j];
      }
    }
  });
}

// What block number `block` of a product does.
template <
    typename Tile, typename Arithmetic, bool a_along_k, bool b_along_k,
    bool finishes = false>
__device__ __forceinline__ void multiply(
    const Product<typename Arithmetic::Value>& product, unsigned block) {
  const TilePlace place = place_in(product.grid, block);
  MatrixSource<Tile, Arithmetic, a_along_k, b_along_k> source(product, place);
  Sums<typename Arithmetic::Value> sums = {};
  multiply_stages<Tile, Arithmetic>(
      source, source.stages(), dynamic_shared<typename Tile::Word>(), sums);
  if (add_parts(product.grid, product.workspace, place, sums)) {
    write_sums<finishes, Tile>(product, place, sums);
  }
}

template <typename Tile, typename Arithmetic>
__global__ void __launch_bounds__(
    kTileThreads, blocks_per_processor<Tile, Arithmetic>())
    forward_kernel(Product<typename Arithmetic::Value> product) {
  multiply<Tile, Arithmetic, true, true, true>(product, blockIdx.x);
}

// Blocks: those of the input's gradient, then those of the weights'.
template <typename Tile, typename Arithmetic>
__global__ void __launch_bounds__(
    kTileThreads, blocks_per_processor<Tile, Arithmetic>())
    backward_kernel(
        Product<typename Arithmetic::Value> data,
        Product<typename Arithmetic::Value> weights) {
  const unsigned of_data = data.grid.blocks();
  if (blockIdx.x < of_data) {
    multiply<Tile, Arithmetic, true, false>(data, blockIdx.x);
  } else {
    multiply<Tile, Arithmetic, false, false>(weights, blockIdx.x - of_data);
  }
}

template <typename T>
void set_division(
    Product<T>& product, const Division& division, const Workspace<T>& workspace) {
  product.grid = division.grid;
  product.depth_of_part = static_cast<int>(division.depth_of_part);
  product.workspace = workspace;
}

template <typename T>
Product<T> data_product(
    const LinearShape& shape, const LinearGradient<T>& gradient, const T* weight,
    const Workspace<T>& workspace, T* grad_input) {
  Product<T> product{};
  if (grad_input == nullptr) {
    return product;
  }
  product.a = operand_of(
      gradient.values, gradient.output, gradient.scale, shape.samples, shape.out);
  product.b = operand_of<T>(weight, nullptr, 1, shape.in, shape.in);
  product.depth = static_cast<int>(shape.out);
  product.target.values = grad_input;
  product.target.row_step = shape.in;
  product.target.column_step = 1;
  set_division(product, divide_backward_data(shape), workspace);
  return product;
}

template <typename T>
Product<T> weights_product(
    const LinearShape& shape, const T* input, const LinearGradient<T>& gradient,
    const ParameterGradients<T>& gradients) {
  Product<T> product{};
  product.a = operand_of<T>(input, nullptr, 1, shape.in, shape.in);
  product.a.ones = true;
  product.b = operand_of(
      gradient.values, gradient.output, gradient.scale, shape.out, shape.out);
  product.depth = static_cast<int>(shape.samples);
  product.target.values = gradients.weight;
  product.target.row_step = 1;
  product.target.column_step = shape.in;
  product.target.accumulate = gradients.accumulate;
  product.target.of_ones = gradients.bias;
  set_division(
      product, {grid_of(shape.in + 1, shape.out, is_narrow(shape.out)), shape.samples},
      {});
  return product;
}

}  // namespace

void check_linear(const LinearShape& s) {
  // More than any layer here has; tiles and their sums are counted in 32 bits.
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

WorkspaceSize linear_workspace(const LinearShape& s) {
  return larger(
      divide_forward(s).grid.workspace(), divide_backward_data(s).grid.workspace());
}

template <typename T>
void linear(
    const LinearShape& shape, Products products, const T* input, const T* weight,
    const T* bias, const ReluAndDropout& behind, const Workspace<T>& workspace,
    T* output, Stream stream) {
  check_linear(shape);
  Product<T> product{};
  product.a = operand_of<T>(input, nullptr, 1, shape.samples, shape.in);
  product.b = operand_of<T>(weight, nullptr, 1, shape.out, shape.in);
  product.depth = static_cast<int>(shape.in);
  product.target.values = output;
  product.target.row_step = shape.out;
  product.target.column_step = 1;
  product.target.finish = {
      bias,
      behind.relu,
      {behind.place, behind.layer, shape.samples, shape.out,
       dropout_threshold(behind.p)},
      static_cast<T>(behind.scale())};
  set_division(product, divide_forward(shape), workspace);
  if (product.grid.blocks() == 0) {
    return;
  }
  with_tile<T>(products, is_narrow(shape.out), [&](auto tile, auto arithmetic) {
    using Tile = decltype(tile);
    using Arithmetic = decltype(arithmetic);
    launch_tiles<Arithmetic>(
        "linear", forward_kernel<Tile, Arithmetic>, product.grid.blocks(),
        Tile::kSharedBytes, stream, product);
  });
}

template <typename T>
void linear_backward(
    const LinearShape& shape, Products products, const T* input, const T* weight,
    const LinearGradient<T>& gradient, const Workspace<T>& workspace,
    const ParameterGradients<T>& gradients, T* grad_input, Stream stream) {
  check_linear(shape);
  const auto data = data_product(shape, gradient, weight, workspace, grad_input);
  const auto weights = weights_product(shape, input, gradient, gradients);
  with_tile<T>(products, is_narrow(shape.out), [&](auto tile, auto arithmetic) {
    using Tile = decltype(tile);
    using Arithmetic = decltype(arithmetic);
    launch_tiles<Arithmetic>(
        "linear_backward", backward_kernel<Tile, Arithmetic>,
        data.grid.blocks() + weights.grid.blocks(), Tile::kSharedBytes, stream, data,
        weights);
  });
}

template void linear(
    const LinearShape&, Products, const float*, const float*, const float*,
    const ReluAndDropout&, const Workspace<float>&, float*, Stream);
template void linear(
    const LinearShape&, Products, const double*, const double*, const double*,
    const ReluAndDropout&, const Workspace<double>&, double*, Stream);
template void linear_backward(
    const LinearShape&, Products, const float*, const float*,
    const LinearGradient<float>&, const Workspace<float>&,
    const ParameterGradients<float>&, float*, Stream);
template void linear_backward(
    const LinearShape&, Products, const double*, const double*,
    const LinearGradient<double>&, const Workspace<double>&,
    const ParameterGradients<double>&, double*, Stream);

}  // namespace tandem::cuda
