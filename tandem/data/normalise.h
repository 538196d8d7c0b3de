#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tandem {

/// Converts pixels to numbers: a byte p becomes (p / 255 - mean) / std. Each step is
/// rounded to float32, as in torchvision. The bits do not depend on the CPU.
class Normaliser {
 public:
  /// Returns the normalized value of a pixel p.
  float operator()(uint8_t p) const {
    return table_[p];
  }

  /// Normalizes the pixels `from[i]` and writes them to `to[i]`, for i in [0, count).
  void row(const uint8_t* from, int64_t count, float* to) const;

  /// Minimum length, in pixels, of a row whose values are computed; values of shorter
  /// rows are read from a table.
  static constexpr int64_t kShortest = 16;

  /// Constants of the conversion of a pixel to a number.
  struct Factors {
    float inverse_255;
    float mean;
    float std;
    float inverse_std;
  };
  /// Computes a row of kShortest pixels or more, without divisions.
  using RowFunction =
      void (*)(const uint8_t* from, int64_t count, const Factors& factors, float* to);

  /// Returns the functions that this CPU can run, fastest first.
  static std::vector<RowFunction> row_functions();

  /// Returns the first of row_functions(); null if there is none.
  static RowFunction fastest_function();

  /// Uses `function` for rows, or only the table if `function` is null.
  Normaliser(double mean, double std, RowFunction function = fastest_function());

  /// Returns whether row() computes values with a RowFunction. The constructor accepts
  /// a function only if its results equal the table's values bit by bit.
  bool computes() const {
    return row_ != nullptr;
  }

 private:
  std::array<float, 256> table_{};
  Factors factors_{};
  RowFunction row_ = nullptr;
};

}  // namespace tandem
