#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tandem {

/// Pixels as numbers: a byte p becomes (p / 255 - mean) / std, each step rounded to
/// float32, as torchvision does. Bits do not depend on the CPU.
class Normaliser {
 public:
  /// Takes the fastest function that this CPU has.
  Normaliser(double mean, double std);

  /// What a pixel of value p becomes.
  float operator()(uint8_t p) const {
    return table_[p];
  }

  /// `to[i]` from `from[i]`, for i in [0, count).
  void row(const uint8_t* from, int64_t count, float* to) const;

  /// The shortest row that is not taken from the table one by one.
  static constexpr int64_t kShortest = 16;

  struct Factors {
    float inverse_255;
    float mean;
    float std;
    float inverse_std;
  };
  /// Computes a row of kShortest pixels or more, without divisions.
  using RowFunction =
      void (*)(const uint8_t* from, int64_t count, const Factors& factors, float* to);

  /// The functions that this CPU can run, best first.
  static std::vector<RowFunction> row_functions();

  /// Takes one of these; null: only the table.
  Normaliser(double mean, double std, RowFunction function);

  /// Whether the function gives the table's bits, so that it is used.
  bool computes() const {
    return row_ != nullptr;
  }

 private:
  std::array<float, 256> table_{};
  Factors factors_{};
  RowFunction row_ = nullptr;
};

}  // namespace tandem
