#include "tandem/core/arena.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::arena_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A tensor of shape `dims` with the values first, first + 1, ...
at::Tensor counting(
    double first, const std::vector<int64_t>& dims, at::ScalarType dtype = at::kFloat) {
  auto value = at::empty(dims, dtype);
  return value.copy_((at::arange(value.numel(), at::kDouble) + first).view(dims));
}

at::Tensor parameter(
    double first, const std::vector<int64_t>& dims, at::ScalarType dtype = at::kFloat) {
  return counting(first, dims, dtype).set_requires_grad(true);
}

std::vector<std::string> slot_names(const Arena& arena) {
  std::vector<std::string> names;
  for (const auto& slot : arena.layout().slots()) {
    names.push_back(slot.name);
  }
  return names;
}

// Two layers. No parameter's size is a multiple of 64 bytes.
struct TwoLayers {
  at::Tensor w1 = parameter(1, {2, 3});
  at::Tensor b1 = parameter(100, {3});
  at::Tensor w2 = parameter(200, {5, 7});

  std::vector<NamedTensor> named() const {
    return {{"l1.weight", w1}, {"l1.bias", b1}, {"l2.weight", w2}};
  }
};

TEST(ModelArenas, ParametersAreInReverseOrderOfRegistration) {
  TwoLayers model;
  ModelArenas arenas(model.named(), {});
  EXPECT_THAT(
      slot_names(arenas.parameters()),
      ElementsAre("l2.weight", "l1.bias", "l1.weight"));
  ASSERT_EQ(arenas.tensors().size(), 3u);
  EXPECT_TRUE(arenas.tensors()[0].is_same(model.w2));
  EXPECT_TRUE(arenas.tensors()[1].is_same(model.b1));
  EXPECT_TRUE(arenas.tensors()[2].is_same(model.w1));
  // The state is in the order of the state dict.
  ASSERT_EQ(arenas.state().size(), 3u);
  EXPECT_EQ(arenas.state()[0].name, "l1.weight");
  EXPECT_EQ(arenas.state()[2].name, "l2.weight");
}

TEST(ModelArenas, ParametersKeepTheirValuesAsViewsOfTheArena) {
  TwoLayers model;
  ModelArenas arenas(model.named(), {});
  EXPECT_TRUE(model.w1.equal(counting(1, {2, 3})));
  EXPECT_TRUE(model.b1.equal(counting(100, {3})));
  EXPECT_TRUE(model.w2.equal(counting(200, {5, 7})));
  EXPECT_TRUE(model.w1.requires_grad());
  EXPECT_TRUE(model.w1.is_leaf());

  Arena& arena = arenas.parameters();
  arena.slice(arena.layout().slots()[1].range()).add_(0.5);
  EXPECT_TRUE(model.b1.equal(counting(100.5, {3})));
  model.w2.detach().mul_(2);
  EXPECT_TRUE(arena.view(0).equal(counting(200, {5, 7}) * 2));
  // The padding is zero, so the sum of the arena is that of the slots.
  const double total =
      (model.w1.sum() + model.b1.sum() + model.w2.sum()).item<double>();
  EXPECT_EQ(arena.segment(0).sum().item<double>(), total);
}

TEST(ModelArenas, ParametersAreAlignedTo64Bytes) {
  for (const auto& allocator : {heap_allocator(), shared_allocator()}) {
    TwoLayers model;
    ModelArenaOptions options;
    options.allocate_parameters = allocator;
    options.allocate_gradients = allocator;
    const ModelArenas arenas(model.named(), {}, options);
    for (const auto& tensor : {model.w1, model.b1, model.w2}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.grad().data_ptr()) % 64, 0u);
    }
  }
}

TEST(ModelArenas, AutogradAddsToTheGradientArena) {
  TwoLayers model;
  ModelArenas arenas(model.named(), {});
  const auto factor = counting(1, {2, 3});
  const void* before = model.w1.grad().data_ptr();
  (model.w1 * factor).sum().backward();
  (model.w1 * factor).sum().backward();
  EXPECT_EQ(model.w1.grad().data_ptr(), before);
  EXPECT_TRUE(arenas.gradients().view(2).equal(factor * 2));
  EXPECT_EQ(
      arenas.gradients().segment(0).sum().item<double>(), 42);  // all others are 0

  arenas.gradients().zero();
  EXPECT_EQ(model.w1.grad().abs().sum().item<double>(), 0);
}

TEST(ModelArenas, ChannelsLastParametersAndGradientsStayChannelsLast) {
  const auto format = at::MemoryFormat::ChannelsLast;
  const auto values = counting(1, {2, 3, 4, 5});
  auto weight = values.clone().contiguous(format).set_requires_grad(true);
  ModelArenas arenas({{"bias", parameter(0, {3})}, {"weight", weight}}, {});
  EXPECT_TRUE(weight.is_contiguous(format));
  EXPECT_TRUE(weight.equal(values));
  EXPECT_TRUE(weight.grad().is_contiguous(format));

  const auto factor = counting(7, {2, 3, 4, 5});
  (weight * factor).sum().backward();
  EXPECT_TRUE(weight.grad().is_alias_of(arenas.gradients().segment(0)));
  EXPECT_TRUE(arenas.gradients().view(0).equal(factor));
  // Neighbors in memory differ in the channel.
  EXPECT_EQ(
      arenas.parameters().segment(0)[1].item<float>(),
      values[0][1][0][0].item<float>());
}

TEST(ModelArenas, TiedWeightsHaveOneSlotUnderTheirFirstName) {
  auto tied = parameter(1, {4, 2});
  auto middle = parameter(50, {3});
  ModelArenas arenas({{"embed", tied}, {"middle", middle}, {"out", tied}}, {});
  EXPECT_THAT(slot_names(arenas.parameters()), ElementsAre("middle", "embed"));
  EXPECT_EQ(arenas.tensors().size(), 2u);
  ASSERT_EQ(arenas.state().size(), 3u);
  arenas.parameters().view(1).add_(10);
  EXPECT_TRUE(arenas.state()[0].tensor.equal(counting(11, {4, 2})));
  EXPECT_TRUE(arenas.state()[2].tensor.equal(counting(11, {4, 2})));

  (tied * 2).sum().backward();
  (tied * 3).sum().backward();
  EXPECT_TRUE(arenas.gradients().view(1).equal(at::full({4, 2}, 5.0)));
}

TEST(ModelArenas, FrozenAndDoubleParametersHaveSeparateSegments) {
  auto trained = parameter(1, {3});
  auto held = counting(10, {3});
  auto wide = parameter(20, {3}, at::kDouble);
  ModelArenaOptions options;
  options.group_of = [](const NamedTensor& entry) {
    return entry.name == "held" ? 5 : 2;
  };
  ModelArenas arenas(
      {{"trained", trained}, {"held", held}, {"wide", wide}}, {}, options);
  const auto& layout = arenas.parameters().layout();
  ASSERT_EQ(layout.segments().size(), 3u);
  EXPECT_EQ(layout.segments()[0].dtype, at::kDouble);
  EXPECT_TRUE(layout.segments()[0].trainable);
  EXPECT_FALSE(layout.segments()[1].trainable);
  EXPECT_EQ(layout.segments()[2].dtype, at::kFloat);
  EXPECT_EQ(layout.trainable_ranges().size(), 2u);
  EXPECT_EQ(layout.slots()[1].group, 5);
  EXPECT_EQ(layout.slots()[2].group, 2);

  EXPECT_FALSE(held.grad().defined());
  EXPECT_FALSE(held.requires_grad());
  EXPECT_EQ(wide.grad().scalar_type(), at::kDouble);
  arenas.parameters().segment(1).add_(1);
  EXPECT_TRUE(held.equal(counting(11, {3})));
}

TEST(ModelArenas, BuffersOfAllDtypesHaveASeparateArena) {
  auto weight = parameter(1, {3});
  auto mean = counting(5, {3});
  auto count = at::full({}, int64_t{1} << 40, at::kLong);
  ModelArenas arenas({{"weight", weight}}, {{"mean", mean}, {"count", count}});
  EXPECT_THAT(slot_names(arenas.parameters()), ElementsAre("weight"));
  EXPECT_THAT(slot_names(arenas.buffers()), ElementsAre("mean", "count"));
  EXPECT_TRUE(arenas.buffers().layout().trainable_ranges().empty());
  EXPECT_EQ(count.item<int64_t>(), int64_t{1} << 40);
  EXPECT_EQ(count.dim(), 0);

  count.add_(1);
  EXPECT_EQ(arenas.buffers().segment(1)[0].item<int64_t>(), (int64_t{1} << 40) + 1);
  arenas.buffers().segment(0).mul_(2);
  EXPECT_TRUE(mean.equal(counting(5, {3}) * 2));
  ASSERT_EQ(arenas.state().size(), 3u);
  EXPECT_EQ(arenas.state()[1].name, "mean");
  EXPECT_EQ(arenas.state()[2].name, "count");
}

TEST(ModelArenas, CheckAttachedNamesTheMovedParameter) {
  TwoLayers model;
  const ModelArenas arenas(model.named(), {});
  arenas.check_attached();
  model.b1.set_data(model.b1.detach().clone());
  EXPECT_THAT(
      error_of<ConfigError>([&] { arenas.check_attached(); }),
      AllOf(HasSubstr("'l1.bias'"), Not(HasSubstr("weight"))));
}

TEST(ModelArenas, AttachGradientsKeepsValuesAndZeroesMissingGradients) {
  TwoLayers model;
  ModelArenas arenas(model.named(), {});
  arenas.gradients().segment(0).fill_(9);
  model.w1.mutable_grad() = at::Tensor();
  model.b1.mutable_grad() = counting(3, {3});
  arenas.attach_gradients();
  for (const auto& tensor : arenas.tensors()) {
    EXPECT_TRUE(tensor.grad().is_alias_of(arenas.gradients().segment(0)));
  }
  EXPECT_TRUE(arenas.gradients().view(0).equal(at::full({5, 7}, 9.0)));  // untouched
  EXPECT_TRUE(arenas.gradients().view(1).equal(counting(3, {3})));
  EXPECT_TRUE(arenas.gradients().view(2).equal(at::zeros({2, 3})));
  model.w1.sum().backward();
  EXPECT_TRUE(arenas.gradients().view(2).equal(at::ones({2, 3})));
}

TEST(ModelArenas, Sha256DependsOnlyOnNamesAndValues) {
  const auto digest = [](int64_t divisor, const std::string& name, bool channels_last) {
    auto weight = counting(1, {2, 3, 1, 2});
    if (channels_last) {
      weight = weight.contiguous(at::MemoryFormat::ChannelsLast);
    }
    ModelArenaOptions options;
    options.divisor = divisor;
    return ModelArenas(
               {{name, weight.set_requires_grad(true)}, {"b", parameter(50, {3})}}, {},
               options)
        .parameters_sha256();
  };
  // Python: h = hashlib.sha256(); h.update(b"w\0" + w.numpy().tobytes()), then b.
  const std::string expected =
      "7549fa72fbfb4367700ace1197a50517fdbfbda1ef6d444710f47c8b4f617ce0";
  EXPECT_EQ(digest(1, "w", false), expected);
  EXPECT_EQ(digest(7, "w", false), expected);
  EXPECT_EQ(digest(1, "w", true), expected);
  EXPECT_NE(digest(1, "v", false), expected);
}

TEST(ModelArenas, Sha256ChangesWithOneBitOfAnyParameter) {
  TwoLayers model;
  ModelArenas arenas(model.named(), {});
  const std::string before = arenas.parameters_sha256();
  for (const auto& tensor : arenas.tensors()) {
    auto* last_byte = static_cast<uint8_t*>(tensor.data_ptr()) + tensor.nbytes() - 1;
    *last_byte ^= 0x80u;
    EXPECT_NE(arenas.parameters_sha256(), before);
    *last_byte ^= 0x80u;
  }
  arenas.gradients().segment(0).fill_(1);
  EXPECT_EQ(arenas.parameters_sha256(), before);
}

}  // namespace tandem::arena_test
