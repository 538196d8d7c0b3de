#pragma once

namespace tandem::cuda {

/// What is multiplied. Sums are float32, or float64 of float64.
enum class Products {
  // The values as they are, by multiply-adds of each.
  full,
  // float32 rounded to tf32 (10 digits behind the point), by tensor cores.
  tf32,
  // float32 rounded to bf16 (7 digits), by tensor cores.
  bf16,
};

}  // namespace tandem::cuda
