// The tests of tests/device that hold on a GPU, on the host's first: the executor of
// kernels against autograd in main memory, and batches. Without a GPU all are skipped.

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tandem/base/error.h"
#include "tandem/core/device/device_kernels.h"
#include "tandem/exec/device/cuda_devices.h"

namespace tandem::gpu_test {

// Ends the program, whose tests CTest then counts as skipped: of an environment that is
// skipped GoogleTest says that all have passed.
class NeedsGpu : public testing::Environment {
 public:
  void SetUp() override {
    constexpr int kSkipped = 77;
    const auto facts = find_cuda_devices();
    if (!facts.why_none.empty()) {
      std::cout << "Skipped\nno GPU: " << facts.why_none
                << "; scripts/gpu-test where there is one" << std::endl;
      std::exit(kSkipped);
    }
  }
};

const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new NeedsGpu);

TEST(Gpu, ComputesWhatItIsTold) {
  const auto placement = cuda_placement(0);
  const auto ones =
      at::ones({1000}, at::TensorOptions(at::kDouble).device(*placement.device));
  EXPECT_EQ((ones + ones).sum().item<double>(), 2000);
  EXPECT_GT(placement.kernels->free_bytes(), 0);
}

TEST(Gpu, OneThatIsNotThereIsNamed) {
  EXPECT_THROW(cuda_placement(1000), ConfigError);
}

}  // namespace tandem::gpu_test
