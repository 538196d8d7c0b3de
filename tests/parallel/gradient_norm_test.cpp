// Norms of gradients, which replicas with other instruction sets or threads compute.

#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/parallel/update/arena_update.h"
#include "tests/exec/threads.h"

namespace tandem::gradient_norm_test {

double norm_with(int threads, const at::Tensor& gradient) {
  const Threads on(threads);
  const auto weight =
      at::zeros({333, 1001}, gradient.scalar_type()).set_requires_grad(true);
  ModelArenas arenas({{"weight", weight}}, {});
  arenas.gradients().view(0).view(-1).copy_(gradient);
  return own_gradient_norm(arenas).item<double>();
}

TEST(GradientNorm, HasTheBitsOfAFixedOrder) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    // The bits of linspace() depend on the number of threads.
    const auto gradient = at::linspace(-3, 5, 333 * 1001, dtype);
    const double norm = norm_with(1, gradient);
    EXPECT_EQ(norm_with(2, gradient), norm);
    EXPECT_EQ(norm_with(3, gradient), norm);
    // A sum in float32 has an error of about 1e-7.
    const auto exact = gradient.to(at::kDouble).norm();
    EXPECT_NEAR(norm / exact.item<double>(), 1, 1e-13);
  }
}

}  // namespace tandem::gradient_norm_test
