#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// What training minimises. `automatic`: the model's own.
enum class LossKind {
  automatic,
  cross_entropy,
  nll,
  mse,
  // Cross-entropy of the outputs' softmax: the loss of programs whose network ends in a
  // softmax that they give to torch.nn.CrossEntropyLoss, which expects logits. The loss
  // cannot fall below log(1 + (classes - 1) / e): 1.461 for ten.
  softmax_cross_entropy,
};
template <>
struct Choices<LossKind> {
  static constexpr Choice<LossKind> rows[] = {
      {LossKind::automatic, "auto", "the model's own"},
      {LossKind::cross_entropy, "cross_entropy", "any model"},
      {LossKind::nll, "nll", "models that end in a log-softmax"},
      {LossKind::mse, "mse", "outputs against numbers; no data set here has them"},
      {LossKind::softmax_cross_entropy, "softmax_cross_entropy",
       "of the outputs' softmax"}};
};

enum class Reduction { mean, sum };
template <>
struct Choices<Reduction> {
  static constexpr Choice<Reduction> rows[] = {
      {Reduction::mean, "mean"}, {Reduction::sum, "sum"}};
};

/// The models of model/zoo.cpp. `custom`: the program brings its own.
enum class ModelKind { custom, net, convnet, net5x5, simplenet, lenet3x3, convnet_bn };

struct ModelRow {
  ModelKind value;
  const char* name;
  const char* help;
  // What it is trained with; nll where it ends in a log-softmax.
  LossKind loss = LossKind::cross_entropy;
  // Pixels that the loader adds on each side: lenet3x3 is made for 32 x 32.
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
      {ModelKind::custom, "custom", "a model of your own (examples/custom_model)"},
      {ModelKind::lenet3x3, "mymodel", "", LossKind::cross_entropy, 2}};
};

/// What a run trains.
struct ModelSettings {
  ModelKind kind = ModelKind::net;
  // A file of weights to start from; "": random ones.
  std::string init;
  bool dropout = true;
  LossKind loss = LossKind::automatic;
  Reduction reduction = Reduction::mean;

  template <typename Table>
  static void describe(Table& table) {
    using O = ModelSettings;
    table.section("model");
    table.add("model", &O::kind, "which network")
        .at_the_end()
        .kept()
        .alternative("bring your own (examples/custom_model)");
    // A run needs its initial weights only when it begins: leaving them out later is no
    // change.
    table
        .add(
            "init", &O::init,
            "weights to start from: a checkpoint, a safetensors file or one that "
            "Python's torch.save(state_dict) wrote")
        .local()
        .kept(ResumeRule::value_or_empty);
    table.add("dropout", &O::dropout, "false: the model's dropout layers do nothing")
        .kept();
    table.add("loss", &O::loss, "what training minimises").kept();
    table.add("reduction", &O::reduction, "of the loss over the global batch").kept();
  }
};

}  // namespace tandem
