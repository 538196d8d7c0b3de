#pragma once

#include <ATen/ops/full.h>
#include <torch/nn/cloneable.h>

#include <functional>
#include <memory>
#include <utility>

#include "tandem/parallel/ddp/data_parallel_module.h"

namespace tandem {

/// A module whose forward() calls a function that the test provides.
template <typename Output, typename... Inputs>
struct Does : torch::nn::Cloneable<Does<Output, Inputs...>> {
  using Body = std::function<Output(Does&, Inputs...)>;

  explicit Does(Body does) : body(std::move(does)) {
    Does::reset();
  }
  void reset() override {
    weight = this->register_parameter("weight", at::full({3}, 2.0, at::kDouble));
  }
  Output forward(Inputs... inputs) {
    return body(*this, inputs...);
  }

  at::Tensor weight;
  double factor = 1;
  Body body;
};

/// Returns a DataParallel with `count` replicas of a module whose forward() calls
/// `body`.
template <typename Output, typename... Inputs>
DataParallel<Does<Output, Inputs...>> replicas_that(
    typename Does<Output, Inputs...>::Body body, int64_t count = 3) {
  return DataParallel<Does<Output, Inputs...>>(
      std::make_shared<Does<Output, Inputs...>>(std::move(body)), count);
}

/// A module whose forward() maps a tensor to a tensor.
using Rows = Does<at::Tensor, at::Tensor>;

inline DataParallel<Rows> rows_model(Rows::Body body, int64_t count = 3) {
  return replicas_that<at::Tensor, at::Tensor>(std::move(body), count);
}

}  // namespace tandem
