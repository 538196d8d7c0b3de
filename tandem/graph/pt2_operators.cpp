#include "tandem/graph/pt2_operators.h"

#include <string_view>

#include "tandem/graph/operators.h"
#include "tandem/graph/pt2.h"

namespace tandem {

namespace {

constexpr std::string_view kTensor = "Tensor";

// Returns an argument of the node; null if the schema has none of this name.
const Argument* find_argument(
    const Node& node, const c10::FunctionSchema& schema, const std::string& name) {
  const auto index = schema.argumentIndexWithName(name);
  return index ? &node.arguments[static_cast<size_t>(*index)] : nullptr;
}

bool is_none(const Argument& argument) {
  return argument.kind == Argument::Kind::constant && argument.constant.isNone();
}

bool is_zero(const Argument& argument) {
  return argument.kind == Argument::Kind::constant && argument.constant.isDouble() &&
         argument.constant.toDouble() == 0;
}

bool is_false(const Argument& argument) {
  return argument.kind == Argument::Kind::constant && argument.constant.isBool() &&
         !argument.constant.toBool();
}

// Returns false if the target is not an operator.
bool set_operator(Node& node, const std::string& target) {
  static const std::string kStart = "torch.ops.";
  const size_t first = target.find('.', kStart.size());
  const size_t second = target.find('.', first + 1);
  if (target.rfind(kStart, 0) != 0 || first == std::string::npos ||
      second == std::string::npos) {
    return false;
  }
  node.target = target.substr(kStart.size(), first - kStart.size()) +
                "::" + target.substr(first + 1, second - first - 1);
  node.overload = target.substr(second + 1);
  if (node.overload == "default") {
    node.overload.clear();
  }
  return true;
}

}  // namespace

const c10::FunctionSchema& find_operator(
    Node& node, const std::string& target, const nlohmann::json& inputs,
    const Pt2Names& names) {
  static const std::string kRegions = "torch.ops.higher_order.";
  if (target.rfind(kRegions, 0) == 0) {
    names.refuse(
        "is the region or control flow '" + target.substr(kRegions.size()) +
        "', which tandem does not support; write the model without it");
  }
  if (!set_operator(node, target)) {
    names.refuse(
        "calls the function '" + target +
        "', which is not an operator of PyTorch; use an operator on tensors");
  }
  const auto* schema = schema_of(node.target, node.overload);
  if (schema == nullptr) {
    names.refuse(
        "calls the operator " + operator_name(node) +
        ", which this LibTorch lacks; use another operator in the model, or a newer "
        "LibTorch");
  }
  const size_t place = node.overload.find(kTensor);
  if (place != std::string::npos && has_number_for_tensor(inputs, *schema)) {
    std::string overload = node.overload;
    overload.replace(place, kTensor.size(), "Scalar");
    if (const auto* scalar = schema_of(node.target, overload)) {
      node.overload = overload;
      schema = scalar;
    }
  }
  return *schema;
}

std::optional<std::string> find_problem(
    const Node& node, const c10::FunctionSchema& schema) {
  const OperatorRow& row = operator_row(node.target);
  if (row.has(kUsesFiles)) {
    return "reads or writes a file, which a network must not do; remove the operator";
  }
  if (row.has(kIsRandom)) {
    return "draws random numbers that tandem cannot reproduce; use dropout, or draw "
           "them before the network";
  }
  const Argument* mode = nullptr;
  for (const char* name : {"training", "train", "use_input_stats"}) {
    mode = mode == nullptr ? find_argument(node, schema, name) : mode;
  }
  if (row.has(kIsBatchNorm) || row.has(kIsDropout)) {
    return mode == nullptr || !is_false(*mode)
               ? std::optional<std::string>()
               : std::string(
                     "is in evaluation mode; export the network for training: ") +
                     kExportLine;
  }
  const Argument* mean = find_argument(node, schema, "running_mean");
  const Argument* dropout = find_argument(node, schema, "dropout");
  const bool keeps_statistics = mean != nullptr && !is_none(*mean);
  const bool drops =
      mode != nullptr && mean == nullptr && (dropout == nullptr || !is_zero(*dropout));
  if (keeps_statistics || drops) {
    return "depends on training or evaluation mode, which tandem supports in batch "
           "norm "
           "and dropout only; use these, and export without run_decompositions()";
  }
  return std::nullopt;
}

}  // namespace tandem
