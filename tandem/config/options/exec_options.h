#pragma once

#include <string>

#include "tandem/config/options/device_choice.h"
#include "tandem/config/options/setting.h"

namespace tandem {

/// Executor of forward and backward. `automatic`: the fastest executor that can run the
/// model.
enum class ExecutorKind { automatic, compiled, eager };
template <>
struct Choices<ExecutorKind> {
  static constexpr Choice<ExecutorKind> rows[] = {
      {ExecutorKind::automatic, "auto",
       "compiled, but eager on a GPU and for models that compiled cannot run"},
      {ExecutorKind::compiled, "compiled",
       "kernels of tandem and oneDNN for CPUs; fp32, and chains of layers also in bf16 "
       "or fp16"},
      {ExecutorKind::eager, "eager", "LibTorch's operators and autograd; any model"},
      {ExecutorKind::compiled, "onednn"}};
};

/// Precision of convolutions and matrix products. `automatic`: bf16 if all ranks run on
/// CPUs that compute in bfloat16, otherwise fp32. A resumed run keeps its precision
/// instead.
enum class Precision { automatic, fp32, tf32, fp64, bf16, fp16 };
template <>
struct Choices<Precision> {
  static constexpr Choice<Precision> rows[] = {
      {Precision::fp32, "fp32"},
      {Precision::tf32, "tf32", "GPUs only: fp32 whose products use a 10-bit mantissa"},
      {Precision::fp64, "fp64"},
      {Precision::bf16, "bf16",
       "convolutions and matrix products of training in bfloat16, parameters and "
       "gradients in float32"},
      {Precision::fp16, "fp16",
       "layers of training round to float16 as on a GPU (--opt-level); on a CPU no "
       "faster than fp32"},
      {Precision::automatic, "auto",
       "bf16 if the CPUs of all ranks compute in it, else fp32"}};
};

/// Parts of the model that round to float16 with Precision::fp16, as in the levels O1
/// and O2 of NVIDIA's Apex (apex.amp.initialize). In both levels, parameters, gradients
/// and batch norm are float32.
enum class OptLevel { o1, o2 };
template <>
struct Choices<OptLevel> {
  static constexpr Choice<OptLevel> rows[] = {
      {OptLevel::o1, "O1", "layers round to float16, except softmax and loss"},
      {OptLevel::o2, "O2", "the whole model rounds, with softmax and input"}};
};

/// Executor, precision, device and threads of a rank.
struct ExecOptions {
  // Special values of loss_scale.
  static constexpr double kNoScale = 0;
  static constexpr double kDynamicScale = -1;
  // Value of `threads` that divides the usable CPUs among the ranks of the host.
  static constexpr int64_t kShareOfCpus = 0;

  ExecutorKind executor = ExecutorKind::automatic;
  Precision precision = Precision::fp32;
  OptLevel opt_level = OptLevel::o1;
  // Factor on the loss, kNoScale or kDynamicScale (optim/grad_scaler.h).
  double loss_scale = kNoScale;
  // True: images and weights of convolutions have the layout torch.channels_last
  // (NHWC). The compiled executor ignores this setting and chooses layouts.
  bool channels_last = false;
  // Layers whose values backward computes again: patterns of names, "every:K" or
  // "auto"; "" for none (train/recomputation.h).
  std::string recompute;
  // Limit on the values of a micro-batch that are kept for backward, such as "512M",
  // for recompute "auto".
  std::string memory;
  DeviceChoice device;
  int64_t threads = kShareOfCpus;

  template <typename Table>
  static void describe(Table& table) {
    using O = ExecOptions;
    table.section("execution");
    table.add("executor", &O::executor, "implementation of forward and backward");
    table.add(
        "precision", &O::precision, "precision of convolutions and matrix products");
    table
        .add(
            "opt_level", &O::opt_level,
            "parts of the model that round to float16, with Apex's names")
        .needs("precision", &O::precision, {Precision::fp16});
    // A checkpoint's optimizer state includes the state of the loss scale, so a resumed
    // run cannot turn loss scaling on or off.
    table
        .add(
            "loss_scale", &O::loss_scale,
            "factor on the loss, against underflow of gradients")
        .between(kTiny, kLarge)
        .or_word("none", kNoScale, "no scaling")
        .or_word("dynamic", kDynamicScale, "by Apex's rule")
        .kept(ResumeRule::whether_default);
    table.add(
        "channels_last", &O::channels_last,
        "images and weights in NHWC with --executor eager, faster on tensor cores");
    table.add(
        "recompute", &O::recompute,
        "layers whose values backward computes again: names such as 'layer2.*', "
        "every:K, or auto with --memory");
    table.add(
        "memory", &O::memory,
        "most memory for the kept values of a micro-batch, with --recompute auto: 512M "
        "or 2G");
    table.add("device", &O::device, "device on which ranks compute");
    table.add("threads", &O::threads, "CPU threads of each rank")
        .between(1, 4096)
        .or_word("auto", kShareOfCpus, "usable CPUs divided by the ranks of the host")
        .local();
  }
};

}  // namespace tandem
