#include "tandem/graph/call_recorder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "tests/graph/graphs.h"

namespace tandem::call_recorder_test {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names_of(const Recording& recording) {
  std::vector<std::string> names;
  for (const auto& call : recording.calls) {
    names.push_back(call.op ? call.op->schema().name() : "function");
  }
  return names;
}

// Returns the reason why the calls of `body` cannot be repeated.
template <typename Body>
std::string obstacle_of(const Body& body) {
  CallRecorder recorder;
  const auto x = waves({3, 4});
  (void)recorder.add_input(x);
  {
    const CallRecorder::Scope scope(recorder);
    body(x);
  }
  return recorder.obstacle();
}

TEST(CallRecorder, RecordsThePartsOfCompositionsAndBackward) {
  CallRecorder recorder;
  const auto x = waves({3, 4});
  const auto weight = waves({2, 4}).requires_grad_();
  (void)recorder.add_input(x);
  recorder.add_fixed(weight);
  const auto start = at::ones({}, at::kDouble);
  {
    const CallRecorder::Scope scope(recorder);
    // matmul() is a composition.
    const auto loss = x.matmul(weight.t()).tanh().sum();
    recorder.end_layer("layer");
    recorder.end_forward();
    (void)recorder.add_input(start);
    recorder.begin_layer("back");
    const auto gradients = torch::autograd::grad({loss}, {weight}, {start});
    EXPECT_NE(recorder.find(gradients[0]), kNoTensor);
  }
  const auto recording = recorder.finish();
  EXPECT_EQ(recorder.obstacle(), "");
  EXPECT_EQ(recording.forward_calls, 4U);
  const auto names = names_of(recording);
  EXPECT_THAT(
      std::vector<std::string>(names.begin(), names.begin() + 4),
      ElementsAre("aten::t", "aten::mm", "aten::tanh", "aten::sum"));
  EXPECT_THAT(names, testing::Contains("aten::tanh_backward"));
  EXPECT_EQ(recording.layers[recording.calls[1].layer], "layer");
  EXPECT_EQ(recording.layers[recording.calls.back().layer], "back");
  // t() returns a view of the weight.
  const auto view = static_cast<size_t>(recording.calls[0].results[0]);
  EXPECT_EQ(recording.tensors[view].root, recording.calls[0].arguments[0].tensor);
}

TEST(CallRecorder, GivesATensorThatIsWrittenInPlaceANewId) {
  CallRecorder recorder;
  const auto x = waves({3});
  const auto before = recorder.add_input(x);
  {
    const CallRecorder::Scope scope(recorder);
    x.mul_(2);
  }
  const auto recording = recorder.finish();
  ASSERT_THAT(names_of(recording), ElementsAre("aten::mul_"));
  EXPECT_EQ(recording.calls[0].arguments[0].tensor, before);
  const auto after = recording.calls[0].results[0];
  EXPECT_NE(after, before);
  EXPECT_EQ(recording.tensors[static_cast<size_t>(after)].root, before);
}

TEST(CallRecorder, NamesCallsThatCannotBeRepeated) {
  using T = at::Tensor;
  EXPECT_EQ(obstacle_of([](const T& x) { (void)x.add(1).exp(); }), "");
  EXPECT_THAT(
      obstacle_of([](const T& x) { (void)at::nonzero(x); }),
      HasSubstr("aten::nonzero returns a tensor whose size depends on values"));
  EXPECT_THAT(
      obstacle_of([](const T& x) { (void)x.index({x > 0}); }),
      HasSubstr("whose size depends on values"));
  EXPECT_THAT(
      obstacle_of([](const T& x) { (void)x.sum().item<double>(); }),
      HasSubstr("reads a value that the program may decide by"));
  EXPECT_THAT(
      obstacle_of([](const T& x) { (void)at::bernoulli(x.abs()); }),
      HasSubstr("draws random numbers from LibTorch's generator"));
  EXPECT_THAT(
      obstacle_of([](const T& x) { (void)(x.add(1)).resize_({2}); }),
      HasSubstr("changes the memory of a tensor in place"));
  // The memory of `other` was not added.
  const auto other = waves({4});
  EXPECT_THAT(
      obstacle_of([&](const T& x) { (void)x.add(other); }),
      HasSubstr("aten::add reads a tensor of the shape [4] that no operator computed"));
}

TEST(CallRecorder, NamesAResultThatNoOperatorComputed) {
  CallRecorder recorder;
  EXPECT_EQ(recorder.result(waves({3, 4})), kNoTensor);
  EXPECT_EQ(recorder.obstacle(), "no operator computed its result of the shape [3, 4]");
}

TEST(CallRecorder, ChangesShapesInPlaceWithoutChangingOtherReaders) {
  CallRecorder recorder;
  const auto x = waves({3, 4});
  (void)recorder.add_input(x);
  {
    const CallRecorder::Scope scope(recorder);
    x.alias().transpose_(0, 1);
  }
  EXPECT_EQ(recorder.obstacle(), "");
  const auto recording = recorder.finish();
  ASSERT_THAT(names_of(recording), ElementsAre("aten::alias", "aten::transpose_"));
  std::vector<c10::IValue> stack = {x, int64_t{0}, int64_t{1}};
  recording.calls[1].run(stack, {});
  EXPECT_THAT(stack.at(0).toTensor().sizes().vec(), ElementsAre(4, 3));
  EXPECT_THAT(x.sizes().vec(), ElementsAre(3, 4));
}

TEST(CallRecorder, RepeatsDrawsWithOtherSamples) {
  CallRecorder recorder;
  SampleContext samples;
  samples.epoch = 3;
  const auto draw = [](const SampleContext& context) {
    return at::full({2}, static_cast<double>(context.epoch));
  };
  at::Tensor drawn;
  {
    const CallRecorder::Scope scope(recorder);
    drawn = draw_recorded(samples, draw);
  }
  EXPECT_TRUE(drawn.eq(3).all().item<bool>());
  const auto recording = recorder.finish();
  ASSERT_THAT(names_of(recording), ElementsAre("function"));
  samples.epoch = 8;
  std::vector<c10::IValue> stack;
  recording.calls[0].run(stack, samples);
  EXPECT_TRUE(stack.at(0).toTensor().eq(8).all().item<bool>());
}

TEST(CallRecorder, SeesOnlyItsThread) {
  CallRecorder recorder;
  {
    const CallRecorder::Scope scope(recorder);
    std::thread([] { (void)waves({3}).exp(); }).join();
  }
  EXPECT_TRUE(recorder.finish().calls.empty());
}

}  // namespace tandem::call_recorder_test
