#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tandem/kernels/cuda/workspace.h"

namespace tandem {

/// What a kernel works with: values of which none is known, and counters, which it is
/// to leave at 0.
template <typename T>
class OwnedWorkspace {
 public:
  explicit OwnedWorkspace(const cuda::WorkspaceSize& size)
      : values_(static_cast<size_t>(size.values), std::numeric_limits<T>::quiet_NaN()),
        counters_(static_cast<size_t>(size.counters)) {}
  OwnedWorkspace(const OwnedWorkspace&) = delete;
  OwnedWorkspace& operator=(const OwnedWorkspace&) = delete;
  ~OwnedWorkspace() {
    EXPECT_THAT(counters_, testing::Each(0u));
  }

  cuda::Workspace<T> get() {
    return {values_.data(), counters_.data()};
  }

 private:
  std::vector<T> values_;
  std::vector<unsigned> counters_;
};

}  // namespace tandem
