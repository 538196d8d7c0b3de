#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tandem {

/// Converts pixels to numbers: a byte p becomes (p / 255 - mean) / std. Each step is
/// rounded to float32, as in torchvision. The bits do not depend on the CPU.
class Normaliser {
 public:
  /// Selects the fastest function for this CPU.
  Normaliser(double mean, double std);

  /// Returns the number for a pixel of value p.
  float operator()(uint8_t p) const {
    return table_[p];
  }

  /// Converts `from[i]` to `to[i]`, for i in [0, count).
  void row(const uint8_t* from, int64_t count, float* to) const;

  /// Length of the shortest row that is computed instead of looked up in the table.
  static constexpr int64_t kShortest = 16;

  /// Constants of the conversion.
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

  /// Uses the given function; null: only the table.
  Normaliser(double mean, double std, RowFunction function);

  /// Returns whether the function gives the table's bits and is therefore used.
  bool computes() const {
    return row_ != nullptr;
  }

 private:
  std::array<float, 256> table_{};
  Factors factors_{};
  RowFunction row_ = nullptr;
};

}  // namespace tandem
