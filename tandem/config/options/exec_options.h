#pragma once

#include "tandem/config/options/device_choice.h"
#include "tandem/config/options/setting.h"

namespace tandem {

/// What computes a stage. `automatic`: the fastest that can run the model.
enum class ExecutorKind { automatic, compiled, eager };
template <>
struct Choices<ExecutorKind> {
  static constexpr Choice<ExecutorKind> rows[] = {
      {ExecutorKind::automatic, "auto",
       "compiled, or eager for models that it does not run and on a GPU"},
      {ExecutorKind::compiled, "compiled",
       "oneDNN and kernels of our own; layered models, fp32, bf16, fp16"},
      {ExecutorKind::eager, "eager", "LibTorch's operators and autograd; any model"},
      {ExecutorKind::compiled, "onednn"}};
};

/// What convolutions and matrix products compute in. `automatic`: bf16 where the CPUs
/// of all ranks compute in it, else fp32.
enum class Precision { automatic, fp32, tf32, fp64, bf16, fp16 };
template <>
struct Choices<Precision> {
  static constexpr Choice<Precision> rows[] = {
      {Precision::fp32, "fp32"},
      {Precision::tf32, "tf32",
       "a GPU's: fp32, but products round to 10 digits behind the point"},
      {Precision::fp64, "fp64"},
      {Precision::bf16, "bf16",
       "convolutions and matrix products of training; parameters and gradients in "
       "float32"},
      {Precision::fp16, "fp16",
       "mixed precision as on a GPU: layers of training round to float16, see "
       "--opt-level; no faster than fp32 on a CPU"},
      {Precision::automatic, "auto",
       "bf16 where the CPUs of all ranks compute in it, else fp32"}};
};

/// What fp16 rounds: the two levels of mixed precision of NVIDIA's Apex
/// (apex.amp.initialize). Parameters, gradients and batch norm are float32 in both.
enum class OptLevel { o1, o2 };
template <>
struct Choices<OptLevel> {
  static constexpr Choice<OptLevel> rows[] = {
      {OptLevel::o1, "O1", "layers round to float16, but softmax and loss"},
      {OptLevel::o2, "O2", "the whole model does, softmax and input too"}};
};

/// How a rank computes.
struct ExecOptions {
  // Values of loss_scale.
  static constexpr double kNoScale = 0;
  static constexpr double kDynamicScale = -1;
  // A value of threads: the CPUs that may be used, divided among the ranks of the host.
  static constexpr int64_t kShareOfCpus = 0;

  ExecutorKind executor = ExecutorKind::automatic;
  Precision precision = Precision::fp32;
  OptLevel opt_level = OptLevel::o1;
  // A factor, kNoScale or kDynamicScale (optim/grad_scaler.h).
  double loss_scale = kNoScale;
  // torch.channels_last: images and convolutions' weights as NHWC. The other executors
  // have layouts of their own.
  bool channels_last = false;
  DeviceChoice device;
  int64_t threads = kShareOfCpus;

  template <typename Table>
  static void describe(Table& table) {
    using O = ExecOptions;
    table.section("execution");
    table.add("executor", &O::executor, "what computes a stage");
    table.add("precision", &O::precision, "what products are computed in");
    table.add("opt_level", &O::opt_level, "what fp16 rounds, in Apex's words")
        .needs("precision", &O::precision, {Precision::fp16});
    // The loss scale is a part of the optimizer's state.
    table.add("loss_scale", &O::loss_scale, "against underflow of gradients; a number")
        .between(kTiny, kLarge)
        .or_word("none", kNoScale)
        .or_word("dynamic", kDynamicScale)
        .kept(ResumeRule::whether_default);
    table.add(
        "channels_last", &O::channels_last,
        "executor eager keeps images as NHWC, which a GPU's tensor cores want");
    table.add("device", &O::device, "where ranks compute");
    table.add("threads", &O::threads, "CPU threads of each rank")
        .between(1, 4096)
        .or_word("auto", kShareOfCpus)
        .local();
  }
};

}  // namespace tandem
