// Networks of files whose shapes do not fit their tensors, in the compiled executor.

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include "tandem/base/error.h"
#include "tandem/exec/compiled/chain_executor.h"
#include "tandem/exec/stage_executor.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"

namespace tandem::stated_shapes_test {

// Returns linear(x, weight, bias), whose input has 4 values and whose output has 3
// values.
std::unique_ptr<Model> linear_model(
    const std::vector<int64_t>& weight, const std::vector<int64_t>& bias) {
  GraphBuilder builder({4});
  const auto w = builder.state("fc.weight", at::ones(weight, at::kDouble));
  const auto b = builder.state("fc.bias", at::ones(bias, at::kDouble));
  builder.call(
      "aten::linear", "",
      {Argument::of_value(builder.input()), Argument::of_value(w),
       Argument::of_value(b)},
      {3}, "fc");
  builder.trainable().states_shapes = true;
  return make_graph_model(builder.graph());
}

// Returns the error of the compiled executor for linear_model().
std::string error_for(
    const std::vector<int64_t>& weight, const std::vector<int64_t>& bias) {
  const auto model = linear_model(weight, bias);
  ModelArenas arenas(model->parameters(), model->buffers());
  return error_of<Error>(
      [&] { (void)make_compiled_executor(*model, arenas, StageOptions()); });
}

TEST(StatedShapes, AreCheckedBeforeAKernelRuns) {
  EXPECT_THAT(error_for({3, 9}, {3}), testing::HasSubstr("linear_0 fails: "));
  EXPECT_THAT(
      error_for({9, 4}, {9}),
      testing::HasSubstr("computes the shape [1, 9], expected"));
  EXPECT_THAT(
      chain_obstacle(*linear_model({3, 4}, {1})->graph(), {}),
      testing::HasSubstr("its bias has another size"));
}

}  // namespace tandem::stated_shapes_test
