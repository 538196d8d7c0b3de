#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/core/arena.h"
#include "tests/core/expect.h"

namespace tandem::shared_arena_test {

struct SharedModel {
  at::Tensor weight = at::arange(20).to(at::kFloat).set_requires_grad(true);
  at::Tensor wide = at::arange(3).to(at::kDouble).set_requires_grad(true);
  std::map<std::pair<std::string, int64_t>, int> fds;
  std::unique_ptr<ModelArenas> arenas;

  SharedModel() {
    ModelArenaOptions options;
    options.allocate_parameters = options.allocate_gradients =
        shared_allocator([this](const std::string& name, int64_t index, int fd) {
          fds[{name, index}] = fd;
        });
    arenas = std::make_unique<ModelArenas>(
        std::vector<NamedTensor>{{"wide", wide}, {"weight", weight}},
        std::vector<NamedTensor>{}, options);
  }
};

TEST(SharedArena, WritesAreVisibleInAllMappings) {
  SharedModel model;
  ASSERT_EQ(model.fds.size(), 4u);
  const auto& segments = model.arenas->parameters().layout().segments();
  auto other = map_shared(model.fds.at({"parameters", 0}), segments[0]);
  auto other_wide = map_shared(model.fds.at({"parameters", 1}), segments[1]);
  auto other_gradients = map_shared(model.fds.at({"gradients", 0}), segments[0]);
  ASSERT_EQ(other.numel(), 32);
  EXPECT_NE(other.data_ptr(), model.arenas->parameters().segment(0).data_ptr());
  EXPECT_EQ(other[19].item<float>(), 19);
  EXPECT_EQ(other_wide[2].item<double>(), 2);

  other.mul_(3);
  EXPECT_TRUE(model.weight.equal(at::arange(20).to(at::kFloat) * 3));
  model.weight.detach().add_(1);
  EXPECT_EQ(other[19].item<float>(), 58);
  (model.weight * 2).sum().backward();
  EXPECT_EQ(other_gradients.sum().item<float>(), 40);
  close(model.fds.at({"gradients", 1}));
}

TEST(SharedArena, MappingIsValidAfterItsArenaIsDestroyed) {
  auto model = std::make_unique<SharedModel>();
  const Segment segment = model->arenas->parameters().layout().segments()[0];
  const auto other = map_shared(model->fds.at({"parameters", 0}), segment);
  for (const auto& key :
       {std::make_pair("parameters", 1), std::make_pair("gradients", 0),
        std::make_pair("gradients", 1)}) {
    close(model->fds.at({key.first, key.second}));
  }
  model.reset();
  EXPECT_EQ(other.sum().item<float>(), 190);
}

TEST(SharedArena, RejectsAMappingThatIsTooSmall) {
  int fd = -1;
  const auto allocate =
      shared_allocator([&fd](const std::string&, int64_t, int made) { fd = made; });
  Segment segment{at::kFloat, at::kCPU, true, 64};
  const auto memory = allocate("parameters", 0, segment);
  EXPECT_EQ(memory.sum().item<float>(), 0);
  segment.numel = 80;
  expect_error<DataError>(
      [&] { return map_shared(fd, segment); }, {"smaller than the 320 bytes"});
}

}  // namespace tandem::shared_arena_test
