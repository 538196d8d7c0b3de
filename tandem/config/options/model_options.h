#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/metric.h"
#include "tandem/config/options/setting.h"

namespace tandem {

/// Loss that training minimizes. `automatic`: mse if targets are numbers, otherwise the
/// model's default loss.
enum class LossKind {
  automatic,
  cross_entropy,
  nll,
  mse,
  // Cross-entropy of the outputs' softmax. Programs compute this loss if they pass the
  // softmax of a network to torch.nn.CrossEntropyLoss, which expects logits. The loss
  // cannot fall below log(1 + (classes - 1) / e), which is 1.461 for ten classes.
  softmax_cross_entropy,
  l1,
  // Binary cross-entropy of sigmoid(output), as torch.nn.BCEWithLogitsLoss.
  bce,
};

struct LossRow {
  LossKind value;
  const char* name;
  const char* help;
  // True if targets are numbers; otherwise targets are classes.
  bool of_numbers = false;
  const Metric* metric = &kAccuracy;
};
template <>
struct Choices<LossKind> {
  static constexpr LossRow rows[] = {
      {LossKind::automatic, "auto",
       "the model's default; mse for targets that are numbers"},
      {LossKind::cross_entropy, "cross_entropy", "any model"},
      {LossKind::nll, "nll", "models that end in a log-softmax"},
      {LossKind::mse, "mse", "squared error, for targets that are numbers", true,
       &kAbsoluteError},
      {LossKind::l1, "l1", "absolute error, for targets that are numbers", true,
       &kAbsoluteError},
      {LossKind::bce, "bce", "binary cross-entropy of logits, for targets from 0 to 1",
       true},
      {LossKind::softmax_cross_entropy, "softmax_cross_entropy",
       "cross_entropy of the outputs' softmax"}};
};

/// Reduction of the loss over the global batch.
enum class Reduction { mean, sum };
template <>
struct Choices<Reduction> {
  static constexpr Choice<Reduction> rows[] = {
      {Reduction::mean, "mean"}, {Reduction::sum, "sum"}};
};

/// Models of model/zoo.cpp. `custom`: a model of the program that calls train().
/// `file`: the network in ModelSettings::file.
enum class ModelKind {
  custom,
  file,
  net,
  convnet,
  net5x5,
  simplenet,
  lenet3x3,
  convnet_bn
};

struct ModelRow {
  ModelKind value;
  const char* name;
  const char* help;
  // Default loss; nll if the model ends in a log-softmax.
  LossKind loss = LossKind::cross_entropy;
  // Number of pixels that the loader adds on each side. lenet3x3 expects images of
  // 32x32.
  int64_t pad = 0;
};
template <>
struct Choices<ModelKind> {
  static constexpr ModelRow rows[] = {
      {ModelKind::net, "net",
       "2 convolutions 3x3, dropout; 1.2 M parameters (tutorial 003)", LossKind::nll},
      {ModelKind::convnet, "convnet",
       "2 convolutions 3x3, Dropout2d; 0.3 M parameters (tutorial 000)", LossKind::nll},
      {ModelKind::net5x5, "net5x5",
       "2 convolutions 5x5, Dropout2d; 12 k parameters (tutorial 001)"},
      {ModelKind::simplenet, "simplenet",
       "one linear layer; 8 k parameters (tutorial 002)"},
      {ModelKind::lenet3x3, "lenet3x3",
       "LeNet's layers with kernels 3x3, on 32x32; 0.3 M parameters (tutorial 002)",
       LossKind::cross_entropy, 2},
      {ModelKind::convnet_bn, "convnet_bn",
       "2 convolutions 5x5, batch norm; 29 k parameters (tutorial 004)"},
      {ModelKind::custom, "custom", "your own model (examples/custom_model)"},
      {ModelKind::file, "file", "a network file"},
      {ModelKind::lenet3x3, "mymodel", "", LossKind::cross_entropy, 2}};
};

/// Returns whether a model is one of model/zoo.cpp.
constexpr bool is_built_in(ModelKind kind) {
  return kind != ModelKind::custom && kind != ModelKind::file;
}

/// PyTorch's default of ignore_index, which is not a class.
constexpr int64_t kNoIgnoredClass = -100;

/// TorchScript files that a run may load. They contain code, so a recipe or a folder
/// from a stranger must not select one.
enum class ScriptTrust {
  // None: a recipe or a config.toml selects the file.
  none,
  // ModelSettings::file, which the program or the command line names.
  named,
  // Also copies in the folders of runs.
  all
};

/// Model of a run and its loss.
struct ModelSettings {
  ModelKind kind = ModelKind::net;
  // Path of the network for ModelKind::file, relative to the working directory: a file
  // of torch.export (NET.pt2) or TorchScript (NET.pt). "" for other kinds.
  std::string file;
  // Not a setting, so no recipe can change it. read_recipe() sets it to `none` if the
  // recipe has a model, unless it is `all`.
  ScriptTrust trust = ScriptTrust::named;
  // File of initial weights; "": random weights, or the weights of the network file.
  std::string init;
  bool dropout = true;
  LossKind loss = LossKind::automatic;
  Reduction reduction = Reduction::mean;
  // Patterns of names (config/name_patterns.h): tensors that are not loaded from
  // `init`, and parameters that are not trained.
  std::string init_skip;
  std::string freeze;
  // For cross_entropy: label_smoothing of torch.nn.CrossEntropyLoss. Training uses it;
  // evaluations do not.
  double label_smoothing = 0;
  // Class whose targets count neither in the loss nor in the accuracy, as ignore_index
  // of torch.nn.CrossEntropyLoss.
  int64_t ignore_index = kNoIgnoredClass;

  /// Returns the value of the setting `model`: the model's name, or the path of its
  /// file.
  std::string model() const {
    return kind == ModelKind::file ? file : name_of(kind);
  }

  template <typename Table>
  static void describe(Table& table) {
    using O = ModelSettings;
    table.section("model");
    table
        .add(
            "model", &O::kind,
            "model to train: one of tandem's, or a file of torch.export (NET.pt2) or "
            "TorchScript (NET.pt)")
        .or_file(&O::kind, ModelKind::file, &O::file, {".pt2", ".pt"})
        .at_the_end()
        .kept()
        .alternative(
            "a file of torch.export (NET.pt2) or TorchScript (NET.pt), or write your "
            "own (examples/custom_model)");
    // A run needs its initial weights only at its start, so a resumed run may leave out
    // `init`.
    table
        .add(
            "init", &O::init,
            "initial weights: a checkpoint, a safetensors file, or a file of Python's "
            "torch.save(state_dict); empty: random, or those of a network file")
        .local()
        .kept(ResumeRule::value_or_empty);
    table
        .add(
            "init_skip", &O::init_skip,
            "tensors that are not loaded from `init`: comma-separated patterns, such "
            "as 'fc.*'")
        .kept(ResumeRule::value_or_empty);
    // A checkpoint has no optimizer state of frozen parameters, so a resumed run cannot
    // begin to train them.
    table
        .add(
            "freeze", &O::freeze,
            "parameters that are not trained: comma-separated patterns, such as "
            "'conv1.*,layer1.*'")
        .kept();
    table.add("dropout", &O::dropout, "use the dropout layers of the model").kept();
    table.add("loss", &O::loss, "loss that training minimises").kept();
    table.add("reduction", &O::reduction, "reduction of the loss over the global batch")
        .kept();
    table
        .add(
            "label_smoothing", &O::label_smoothing,
            "label smoothing of the training loss, 0 to 1")
        .between(0, 1)
        .of("cross_entropy")
        .kept();
    table
        .add(
            "ignore_index", &O::ignore_index,
            "class whose targets count neither in the loss nor in the accuracy; -100: "
            "none")
        .between(-kMany, kMany)
        .kept();
  }
};

}  // namespace tandem
