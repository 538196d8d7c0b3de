// Steps that a device captured once and then repeats: the bits of the steps that it
// captured them from. How far_device.h captures is said there.

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tandem/comm/backends/device.h"
#include "tandem/formats/safetensors.h"
#include "tandem/train/captured_steps.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/data/scratch.h"
#include "tests/device/far_device.h"
#include "tests/parallel/replica.h"

namespace tandem::far_graph_test {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// --- runs ---

// Of 5 steps of 16 samples and one of 10.
constexpr int64_t kEpochs = 4;
constexpr int64_t kStepsOfAnEpoch = 6;

void accumulate_and_clip(RunConfig& config) {
  config.training.batch_size = 8;
  config.training.accumulate = 2;
  config.strategy.clip_norm = 0.1;
}

struct Way {
  const char* name;
  // Which the run without a graph has, and auto takes.
  ExecutorKind inside;
  std::vector<Layer> (*layers)();
  void (*change)(RunConfig& config);
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

// No executor but eager runs a ReLU behind nothing.
std::vector<Layer> net_for_eager() {
  auto layers = small_net_layers();
  layers.insert(layers.begin(), relu());
  return layers;
}

std::vector<Layer> net_with_batch_norm() {
  return convnet_bn_layers();
}

RunConfig run_of(const Way& way, ExecutorKind executor, const std::string& out) {
  RunConfig config;
  config.model.kind = ModelKind::custom;
  config.training.batch_size = 16;
  config.training.epochs = kEpochs;
  config.schedule.kind = ScheduleKind::cosine;
  config.exec.executor = executor;
  config.output.out = out;
  way.change(config);
  return config;
}

// Counts copies between main memory and the device from one step to the next.
class CopyWatch : public Observer {
 public:
  Next on_step(const StepReport&) override {
    to.push_back(copies_to_far());
    from.push_back(copies_from_far());
    return Next::go_on;
  }
  // From before a step to behind it.
  static int64_t in_step(const std::vector<int64_t>& counts, size_t step) {
    return counts[step] - counts[step - 1];
  }

  std::vector<int64_t> to;
  std::vector<int64_t> from;
};

Summary train_on_far(
    const RunConfig& config, const std::vector<Layer>& layers,
    Observer* observer = nullptr) {
  const auto comm = make_single_communicator();
  OwnParts own(make_small_model(layers));
  own.placement = far_placement();
  own.observer = observer;
  return train(config, {noise_images(90), noise_images(40)}, *comm, std::move(own));
}

void expect_same_files(
    const std::string& found, const std::string& expected, int64_t step) {
  for (const char* name : {"model", "training"}) {
    const std::string file =
        fmt::format("/checkpoints/step-{:08}/{}.safetensors", step, name);
    const auto a = read_safetensors(found + file).tensors;
    const auto b = read_safetensors(expected + file).tensors;
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(a[i].tensor.equal(b[i].tensor)) << a[i].name;
    }
  }
}

class FarGraph : public testing::TestWithParam<Way> {};

TEST_P(FarGraph, HasTheBitsOfTheStepsItWasCapturedFrom) {
  const Scratch scratch;
  const auto& way = GetParam();
  const auto expected =
      train_on_far(run_of(way, way.inside, scratch / "one-by-one"), way.layers());
  const auto launches = launches_of_far_graphs();
  const auto found = train_on_far(
      run_of(way, ExecutorKind::cudagraph, scratch / "graph"), way.layers());
  EXPECT_EQ(expected.executor, way.inside);
  EXPECT_EQ(found.executor, ExecutorKind::cudagraph);
  EXPECT_EQ(found.parameters_sha256, expected.parameters_sha256);
  EXPECT_EQ(found.test.loss, expected.test.loss);
  EXPECT_EQ(found.train_accuracy, expected.train_accuracy);
  expect_same_files(scratch / "graph", scratch / "one-by-one", found.steps);
  EXPECT_EQ(found.steps, kEpochs * kStepsOfAnEpoch);
  // All of both sizes of batches but the first.
  EXPECT_EQ(
      launches_of_far_graphs() - launches,
      found.steps - 2 * CapturedSteps::kStepsBefore);
}

TEST_P(FarGraph, GoesOnFromACheckpoint) {
  const Scratch scratch;
  const auto& way = GetParam();
  const auto whole =
      train_on_far(run_of(way, way.inside, scratch / "whole"), way.layers());
  // Saved in the middle of an epoch, where both sizes are captured or will be.
  auto config = run_of(way, ExecutorKind::cudagraph, scratch / "parts");
  config.output.checkpoint_every = whole.steps / 2 + 1;
  config.output.keep_checkpoints = 0;
  train_on_far(config, way.layers());
  const auto middle = config.output.checkpoint_every;
  config.output.checkpoint_every = 0;
  config.output.resume =
      fmt::format("{}/checkpoints/step-{:08}", scratch / "parts", middle);
  EXPECT_EQ(
      train_on_far(config, way.layers()).parameters_sha256, whole.parameters_sha256);
  expect_same_files(scratch / "parts", scratch / "whole", whole.steps);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FarGraph,
    testing::Values(
        Way{"cuda_sgd", ExecutorKind::cuda, &small_net_layers,
            [](RunConfig& config) {
              config.optimizer.kind = OptimizerKind::sgd;
              config.optimizer.momentum = 0.9;
            }},
        Way{"cuda_adam", ExecutorKind::cuda, &small_net_layers,
            [](RunConfig& config) { config.optimizer.kind = OptimizerKind::adam; }},
        Way{"cuda_adadelta", ExecutorKind::cuda, &small_net_layers,
            [](RunConfig& config) { config.optimizer.kind = OptimizerKind::adadelta; }},
        Way{"cuda_batch_norm", ExecutorKind::cuda, &net_with_batch_norm,
            [](RunConfig&) {}},
        Way{"cuda_accumulated_and_clipped", ExecutorKind::cuda, &small_net_layers,
            &accumulate_and_clip},
        Way{"eager_adamw", ExecutorKind::eager, &net_for_eager,
            [](RunConfig& config) { config.optimizer.kind = OptimizerKind::adamw; }},
        Way{"eager_accumulated_and_clipped", ExecutorKind::eager, &net_for_eager,
            &accumulate_and_clip},
        Way{"eager_scaled", ExecutorKind::eager, &small_net_layers,
            [](RunConfig& config) {
              config.exec.precision = Precision::fp16;
              config.exec.loss_scale = ExecOptions::kDynamicScale;
            }},
        Way{"eager_all_left_out", ExecutorKind::eager, &small_net_layers,
            [](RunConfig& config) {
              config.exec.precision = Precision::fp16;
              config.exec.loss_scale = 1e30;
            }}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(FarGraphRun, AStepIsOneCopyToTheDeviceAndNoneBack) {
  const Way way{"", ExecutorKind::cuda, &small_net_layers, [](RunConfig&) {}};
  for (const auto executor : {ExecutorKind::cuda, ExecutorKind::cudagraph}) {
    CopyWatch watch;
    train_on_far(run_of(way, executor, ""), small_net_layers(), &watch);
    // In an epoch's middle, behind the capture.
    for (size_t step = 2 * kStepsOfAnEpoch + 2; step < 3 * kStepsOfAnEpoch - 1;
         ++step) {
      EXPECT_EQ(CopyWatch::in_step(watch.to, step), 1) << step;
      EXPECT_EQ(CopyWatch::in_step(watch.from, step), 0) << step;
    }
  }
}

TEST(FarGraphRun, InMainMemoryItIsRefused) {
  const auto comm = make_single_communicator();
  const Way way{"", ExecutorKind::cuda, &small_net_layers, [](RunConfig&) {}};
  EXPECT_THAT(
      error_of<ConfigError>([&] {
        train(
            run_of(way, ExecutorKind::cudagraph, ""),
            {noise_images(90), noise_images(40)}, *comm,
            OwnParts(make_small_model(small_net_layers())));
      }),
      AllOf(HasSubstr("executor cudagraph"), HasSubstr("use --device cuda")));
}

// --- steps ---

// A rank's parts on the device, and what is said about their steps.
struct Steps {
  explicit Steps(
      RunOptions options = {}, const Placement& placement = far_placement(),
      bool captured = true)
      : replica(
            make_small_model(options.layers), *comm, options.strategy,
            options.optimizer, options.loss, options.scaled, placement),
        data(noise_images(60)),
        loader(data, {}, loader_options(options, placement)),
        steps(
            *replica.strategy, replica.arenas, captured,
            [this](const std::string& line) { said.push_back(line); }) {
    replica.strategy->start();
  }
  LoaderOptions loader_options(
      const RunOptions& options, const Placement& placement) const {
    LoaderOptions loading;
    loading.batch_size = options.global_batch;
    loading.images = copy_to_device(data, placement);
    return loading;
  }
  // An epoch of steps whose rate changes with each.
  void run(int64_t epochs) {
    for (context.epoch = 0; context.epoch < epochs; ++context.epoch) {
      loader.seek(context.epoch);
      for (Batch batch; loader.next(batch); ++context.step) {
        context.lr = 0.05 / static_cast<double>(1 + context.step);
        step({batch});
      }
    }
  }
  virtual void step(const std::vector<Batch>& batches) {
    sums += steps.train_step(batches, context);
  }
  virtual ~Steps() = default;
  std::string hash() const {
    return replica.arenas.parameters_sha256();
  }

  std::unique_ptr<Communicator> comm = make_single_communicator();
  Replica replica;
  Dataset data;
  Loader loader;
  std::vector<std::string> said;
  CapturedSteps steps;
  StepContext context;
  StepSums sums;
};

std::string hash_without_graph(const RunOptions& options, int64_t epochs) {
  Steps steps(options, far_placement(), false);
  steps.run(epochs);
  EXPECT_EQ(steps.steps.num_launched(), 0);
  return steps.hash();
}

// The kernels of the device, but that the host gives the rate to SGD's as it stands
// when it puts the kernel in the stream: right, and wrong in a graph.
class RateByValue : public DeviceKernels {
 public:
  explicit RateByValue(const StepContext& context) : context_(context) {}

  void update_sgd(
      const at::Tensor& param, const at::Tensor& grad,
      const at::Tensor& momentum_buffer, const SgdSettings& settings,
      const GroupConstants& group, const StepScalars*) const override {
    const auto words = at::empty(
        {sizeof(StepScalars) / sizeof(double)},
        at::TensorOptions(at::kDouble).device(kFar));
    words.fill_(0);
    words[0].fill_(context_.lr);
    words[1].fill_(1);
    real_->update_sgd(
        param, grad, momentum_buffer, settings, group,
        reinterpret_cast<const StepScalars*>(words.data_ptr<double>()));
  }
  void update_adam(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
      const at::Tensor&, const AdamSettings&, const GroupConstants&,
      const StepScalars*) const override {
    FAIL();
  }
  void update_adadelta(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
      const AdadeltaSettings&, const GroupConstants&,
      const StepScalars*) const override {
    FAIL();
  }
  void unscale(const at::Tensor&, const ScalerTensors&) const override {
    FAIL();
  }
  void end_scaled_step(
      const LossScaleRule&, const ScalerTensors&, StepScalars*) const override {
    FAIL();
  }
  void fill_dropout_mask(
      const at::Tensor& place, int64_t layer, double p,
      const at::Tensor& mask) const override {
    real_->fill_dropout_mask(place, layer, p, mask);
  }
  void gather_batch(
      const GatherSource& from, const at::Tensor& place, const at::Tensor& inputs,
      const at::Tensor& targets) const override {
    real_->gather_batch(from, place, inputs, targets);
  }
  at::Tensor host_words(int64_t count) const override {
    return real_->host_words(count);
  }
  std::unique_ptr<CopyStream> copy_stream() const override {
    return real_->copy_stream();
  }
  std::unique_ptr<DeviceGraph> capture(
      const std::function<void()>& work) const override {
    return real_->capture(work);
  }
  int64_t free_bytes() const override {
    return real_->free_bytes();
  }

 private:
  std::shared_ptr<const DeviceKernels> real_ = far_kernels();
  const StepContext& context_;
};

// Planted: that comparing bits finds it.
TEST(FarSteps, ARateThatAKernelGotByValueIsFrozenByTheCapture) {
  const auto expected = hash_without_graph({}, 4);
  StepContext shown;
  struct Planted : Steps {
    Planted(const Placement& placement, bool captured, StepContext& shown)
        : Steps({}, placement, captured), shown_(shown) {}
    void step(const std::vector<Batch>& batches) override {
      shown_ = context;
      Steps::step(batches);
    }
    StepContext& shown_;
  };
  const Placement placement{kFar, std::make_shared<const RateByValue>(shown)};
  Planted one_by_one(placement, false, shown);
  one_by_one.run(4);
  EXPECT_EQ(one_by_one.hash(), expected);
  Planted graph(placement, true, shown);
  graph.run(4);
  EXPECT_GT(graph.steps.num_launched(), 0);
  EXPECT_NE(graph.hash(), expected);
}

// Planted: a loss that looks at itself on the host.
TEST(FarSteps, AStepThatReadsBackIsNotCapturedAndSaysSoOnce) {
  RunOptions options;
  options.loss.own = [](const at::Tensor& output, const at::Tensor& targets) {
    const auto loss = summed_loss(LossKind::nll, output, targets);
    return loss.item<double>() < 0 ? loss * 2 : loss;
  };
  const auto expected = hash_without_graph(options, 4);
  Steps steps(options);
  steps.run(4);
  EXPECT_EQ(steps.hash(), expected);
  EXPECT_EQ(steps.steps.num_launched(), 0);
  EXPECT_THAT(
      steps.said, ElementsAre(AllOf(
                      HasSubstr("steps run one by one"),
                      HasSubstr("not permitted when stream is capturing"))));
}

TEST(FarSteps, SumsAreOfTheirStepAndStayThat) {
  RunOptions options;
  Steps graph(options);
  Steps one_by_one(options, far_placement(), false);
  std::vector<StepSums> found;
  for (Steps* steps : {&graph, &one_by_one}) {
    steps->context.lr = 0.1;
    for (int64_t step = 0; step < 6; ++step) {
      steps->loader.seek(step);
      Batch batch;
      ASSERT_TRUE(steps->loader.next(batch));
      found.push_back(steps->steps.train_step({batch}, steps->context));
    }
  }
  EXPECT_EQ(graph.steps.num_launched(), 6 - CapturedSteps::kStepsBefore);
  for (size_t step = 0; step < 6; ++step) {
    EXPECT_EQ(found[step].values().loss, found[step + 6].values().loss) << step;
    EXPECT_EQ(found[step].values().correct, found[step + 6].values().correct) << step;
  }
  EXPECT_NE(found[4].values().loss, found[5].values().loss);
}

// As where they are made in main memory: they are brought to where the graph reads
// them.
TEST(FarSteps, BatchesMayBeSomewhereElseInEachStep) {
  const auto run = [](bool captured, bool in_main_memory) {
    Steps steps({}, far_placement(), captured);
    std::vector<at::Tensor> held;
    for (int64_t step = 0; step < 7; ++step, ++steps.context.step) {
      steps.context.lr = 0.1;
      steps.loader.seek(step);
      Batch batch;
      EXPECT_TRUE(steps.loader.next(batch));
      for (auto* tensor : {&batch.inputs, &batch.targets}) {
        *tensor = in_main_memory ? tensor->cpu() : tensor->clone();
        held.push_back(*tensor);
      }
      steps.steps.train_step({batch}, steps.context);
    }
    EXPECT_EQ(
        steps.steps.num_launched(), captured ? 7 - CapturedSteps::kStepsBefore : 0);
    EXPECT_THAT(steps.said, IsEmpty());
    return steps.hash();
  };
  const auto expected = run(false, false);
  EXPECT_EQ(run(true, false), expected);
  EXPECT_EQ(run(true, true), expected);
}

TEST(FarSteps, OfManySizesTheLastRunOneByOne) {
  const auto run = [](bool captured) {
    Steps steps({}, far_placement(), captured);
    for (int64_t round = 0; round < 4; ++round) {
      for (int64_t size = 1; size <= 6; ++size, ++steps.context.step) {
        steps.context.lr = 0.1;
        steps.loader.seek(round);
        Batch batch;
        EXPECT_TRUE(steps.loader.next(batch));
        batch.inputs = batch.inputs.narrow(0, 0, size);
        batch.targets = batch.targets.narrow(0, 0, size);
        batch.global_count = size;
        steps.steps.train_step({batch}, steps.context);
      }
    }
    if (captured) {
      EXPECT_EQ(steps.steps.num_launched(), 2 * CapturedSteps::kMostSizes);
      EXPECT_THAT(steps.said, ElementsAre(HasSubstr("further sizes of batches")));
    }
    return steps.hash();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(FarSteps, SaysWhichStrategiesAreNotCaptured) {
  RunOptions averaging;
  averaging.strategy.kind = StrategyKind::averaging;
  Steps steps(averaging);
  EXPECT_THAT(
      steps.said, ElementsAre(HasSubstr("this strategy decides things on the host")));
  steps.run(1);
  EXPECT_EQ(steps.steps.num_launched(), 0);
  const auto said = on_each_rank("thread", 2, [](Communicator& comm) {
    RunOptions options;
    options.placement = far_placement(comm.rank());
    const auto group = make_device_communicator(comm.split(0));
    Replica replica(
        make_small_model(options.layers), *group, options.strategy, options.optimizer,
        options.loss, false, options.placement);
    std::string line;
    CapturedSteps(
        *replica.strategy, replica.arenas, true,
        [&](const std::string& said_line) { line = said_line; });
    return line;
  });
  EXPECT_THAT(said, Each(HasSubstr("ranks meet over thread in each step")));
}

}  // namespace tandem::far_graph_test
