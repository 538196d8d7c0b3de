#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/config/options/optimizer_options.h"
#include "tandem/core/arena.h"

namespace tandem {

class Algorithm;

/// The settings of a parameter group. All of them are set.
class LoopSettings {
 public:
  virtual ~LoopSettings() = default;

  /// Returns the settings.
  OptimizerOptions& settings() {
    return settings_;
  }
  /// Returns the settings.
  const OptimizerOptions& settings() const {
    return settings_;
  }

 protected:
  LoopSettings(OptimizerKind kind, double lr);
  void save_settings(torch::serialize::OutputArchive& archive) const;
  void load_settings(torch::serialize::InputArchive& archive);

 private:
  OptimizerOptions settings_;
};

/// Base class of the options of a parameter group.
template <typename Derived, OptimizerKind kind>
class LoopOptions : public torch::optim::OptimizerCloneableOptions<Derived>,
                    public LoopSettings {
 public:
  static constexpr OptimizerKind kKind = kind;
  using Self = Derived;

  // Not explicit, as in LibTorch's optimizers: Adadelta(parameters, 0.5).
  LoopOptions(double lr = row_of(kind).lr)  // NOLINT(google-explicit-constructor)
      : LoopSettings(kind, lr) {}

  /// Returns the learning rate.
  double lr() const {
    return settings().lr;
  }
  /// Sets the learning rate.
  Self& lr(double value) {
    settings().lr = value;
    return static_cast<Self&>(*this);
  }
  /// Returns the weight decay.
  double weight_decay() const {
    return settings().weight_decay;
  }
  /// Sets the weight decay.
  Self& weight_decay(double value) {
    settings().weight_decay = value;
    return static_cast<Self&>(*this);
  }

  void serialize(torch::serialize::InputArchive& archive) override {
    load_settings(archive);
  }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    save_settings(archive);
  }
  double get_lr() const override {
    return lr();
  }
  void set_lr(const double value) override {
    lr(value);
  }
};

// Defines a getter `name()` and a setter `name(value)` of a setting.
#define TANDEM_LOOP_OPTION(type, name, setting) \
  type name() const {                           \
    return settings().setting;                  \
  }                                             \
  Self& name(type value) {                      \
    settings().setting = value;                 \
    return *this;                               \
  }

// Defines betas(), as in LibTorch's Adam.
#define TANDEM_LOOP_BETAS()                                \
  std::tuple<double, double> betas() const {               \
    return {settings().beta1, settings().beta2};           \
  }                                                        \
  Self& betas(const std::tuple<double, double>& values) {  \
    std::tie(settings().beta1, settings().beta2) = values; \
    return *this;                                          \
  }

/// Options of Adadelta. Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method",
/// 2012.
struct AdadeltaOptions : LoopOptions<AdadeltaOptions, OptimizerKind::adadelta> {
  using LoopOptions::LoopOptions;
  TANDEM_LOOP_OPTION(double, rho, rho)
  TANDEM_LOOP_OPTION(double, eps, eps)
};

/// Options of Adafactor. eps() and eps2() are eps[0] and eps[1] of
/// torch.optim.Adafactor, and d() is its d. An eps() of 0 is the machine epsilon of the
/// parameter's type.
struct AdafactorOptions : LoopOptions<AdafactorOptions, OptimizerKind::adafactor> {
  using LoopOptions::LoopOptions;
  TANDEM_LOOP_OPTION(double, beta2_decay, beta2_decay)
  TANDEM_LOOP_OPTION(double, eps, eps)
  TANDEM_LOOP_OPTION(double, eps2, eps2)
  TANDEM_LOOP_OPTION(double, d, update_clip)
};

/// Options of Adamax.
struct AdamaxOptions : LoopOptions<AdamaxOptions, OptimizerKind::adamax> {
  using LoopOptions::LoopOptions;
  TANDEM_LOOP_BETAS()
  TANDEM_LOOP_OPTION(double, eps, eps)
};

/// Options of LAMB. Source: You et al., "Large Batch Optimization for Deep Learning:
/// Training BERT in 76 minutes", ICLR 2020.
struct LambOptions : LoopOptions<LambOptions, OptimizerKind::lamb> {
  using LoopOptions::LoopOptions;
  TANDEM_LOOP_BETAS()
  TANDEM_LOOP_OPTION(double, eps, eps)
};

/// Options of Lion. Source: Chen et al., "Symbolic Discovery of Optimization
/// Algorithms", NeurIPS 2023.
struct LionOptions : LoopOptions<LionOptions, OptimizerKind::lion> {
  using LoopOptions::LoopOptions;
  TANDEM_LOOP_BETAS()
};

/// Options of Muon. Parameters that are not matrices are updated by AdamW with betas(),
/// eps() and the same learning rate.
struct MuonOptions : LoopOptions<MuonOptions, OptimizerKind::muon> {
  using LoopOptions::LoopOptions;
  TANDEM_LOOP_OPTION(double, momentum, muon_momentum)
  TANDEM_LOOP_OPTION(int64_t, ns_steps, ns_steps)
  TANDEM_LOOP_OPTION(bool, match_rms_adamw, match_rms_adamw)
  TANDEM_LOOP_BETAS()
  TANDEM_LOOP_OPTION(double, eps, eps)
};

/// Options of NAdam.
struct NAdamOptions : LoopOptions<NAdamOptions, OptimizerKind::nadam> {
  using LoopOptions::LoopOptions;
  TANDEM_LOOP_BETAS()
  TANDEM_LOOP_OPTION(double, eps, eps)
  TANDEM_LOOP_OPTION(double, momentum_decay, momentum_decay)
  TANDEM_LOOP_OPTION(bool, decoupled_weight_decay, decoupled_weight_decay)
};

/// Options of RAdam.
struct RAdamOptions : LoopOptions<RAdamOptions, OptimizerKind::radam> {
  using LoopOptions::LoopOptions;
  TANDEM_LOOP_BETAS()
  TANDEM_LOOP_OPTION(double, eps, eps)
  TANDEM_LOOP_OPTION(bool, decoupled_weight_decay, decoupled_weight_decay)
};

#undef TANDEM_LOOP_OPTION
#undef TANDEM_LOOP_BETAS

/// State of a parameter: the number of steps, and tensors with PyTorch's names. A
/// tensor is undefined if the parameter does not have it.
struct LoopState : public torch::optim::OptimizerCloneableParamState<LoopState> {
  int64_t step = 0;
  std::vector<NamedTensor> tensors;

  LoopState() = default;
  /// Makes undefined tensors with the names of `algorithm`.
  explicit LoopState(const Algorithm& algorithm);

  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// Base class of the optimizers that LibTorch lacks, for loops with torch::optim:
/// Adadelta, Adafactor, Adamax, Lamb, Lion, Muon, NAdam and RAdam. They compute the
/// updates of `tandem train --optimizer`, with the same defaults:
///
///   tandem::Lion optimizer(net->parameters(),
///                          tandem::LionOptions(3e-4).weight_decay(0.1));
///
/// Gradients must be dense. Parameters without a gradient do not change. tandem.h does
/// not include this header, because it needs LibTorch's optimizers. Not thread-safe.
class LoopOptimizer : public torch::optim::Optimizer {
 public:
  ~LoopOptimizer() override;

  /// Adds a group of parameters. Without options, the group gets the defaults.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  torch::Tensor step(LossClosure closure = nullptr) override;

 protected:
  LoopOptimizer(
      const std::vector<torch::optim::OptimizerParamGroup>& groups, OptimizerKind kind,
      std::unique_ptr<torch::optim::OptimizerOptions> defaults);

 private:
  Algorithm& algorithm_of(size_t group, const OptimizerOptions& options);
  LoopState& state_of(const torch::Tensor& parameter, const Algorithm& algorithm);
  void update(
      const torch::Tensor& parameter, Algorithm& algorithm,
      const OptimizerOptions& options);

  struct GroupAlgorithm {
    OptimizerOptions options;
    std::unique_ptr<Algorithm> algorithm;
  };

  OptimizerKind kind_;
  std::vector<GroupAlgorithm> algorithms_;
};

/// An optimizer whose parameter groups have options of type `Options`.
template <typename Options>
class LoopOptimizerOf : public LoopOptimizer {
 public:
  // True if the update of an element depends on other elements of its parameter.
  static constexpr bool kNeedsWholeTensors = row_of(Options::kKind).needs_whole_tensors;

  /// Throws ConfigError for an option out of range.
  explicit LoopOptimizerOf(
      const std::vector<torch::optim::OptimizerParamGroup>& groups,
      const Options& defaults = {})
      : LoopOptimizer(groups, Options::kKind, std::make_unique<Options>(defaults)) {}
  /// Makes an optimizer of one group.
  explicit LoopOptimizerOf(
      std::vector<torch::Tensor> parameters, const Options& defaults = {})
      : LoopOptimizerOf(
            std::vector<torch::optim::OptimizerParamGroup>{
                torch::optim::OptimizerParamGroup(std::move(parameters))},
            defaults) {}

  void save(torch::serialize::OutputArchive& archive) const override {
    torch::optim::serialize<LoopState, Options>(archive, *this);
  }
  void load(torch::serialize::InputArchive& archive) override {
    torch::optim::serialize<LoopState, Options>(archive, *this);
  }
};

using Adadelta = LoopOptimizerOf<AdadeltaOptions>;
using Adafactor = LoopOptimizerOf<AdafactorOptions>;
using Adamax = LoopOptimizerOf<AdamaxOptions>;
using Lamb = LoopOptimizerOf<LambOptions>;
using Lion = LoopOptimizerOf<LionOptions>;
using Muon = LoopOptimizerOf<MuonOptions>;
using NAdam = LoopOptimizerOf<NAdamOptions>;
using RAdam = LoopOptimizerOf<RAdamOptions>;

}  // namespace tandem
