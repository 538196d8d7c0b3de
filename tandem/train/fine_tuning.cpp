#include "tandem/train/fine_tuning.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/comm/exchange.h"
#include "tandem/config/name_patterns.h"
#include "tandem/formats/tensor_list.h"

namespace tandem {

namespace {

bool has_trainable(const std::vector<NamedTensor>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const auto& entry) {
    return entry.tensor.requires_grad();
  });
}

// Returns the index of a group, which is added if it is missing.
int64_t find_or_add(std::vector<ParameterGroup>& groups, const ParameterGroup& wanted) {
  const auto found =
      std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& group) {
        return group.lr_scale == wanted.lr_scale &&
               group.weight_decay_scale == wanted.weight_decay_scale;
      });
  const auto index = found - groups.begin();
  if (found == groups.end()) {
    groups.push_back(wanted);
  }
  return index;
}

}  // namespace

void freeze_parameters(const std::string& patterns, const Model& model) {
  const auto parameters = model.parameters();
  const auto frozen = parse_patterns("freeze", patterns);
  check_patterns_match("freeze", frozen, tensor_names(parameters));
  for (const auto& [name, tensor] : parameters) {
    if (matches_any(frozen, name)) {
      tensor.set_requires_grad(false);
    }
  }
  if (!parameters.empty() && !has_trainable(parameters)) {
    throw ConfigError(fmt::format(
        "[model] all {} parameters are frozen, expected one or more to train; change "
        "--freeze, or requires_grad of the model",
        parameters.size()));
  }
}

GroupedParameters group_parameters(
    const OptimizerOptions& options, const Model& model) {
  const auto rates = parse_pattern_factors("lr_factor", options.lr_factor);
  const auto decays =
      parse_pattern_factors("weight_decay_factor", options.weight_decay_factor);
  GroupedParameters grouped;
  // Tied weights have the group of their first name.
  std::map<const at::TensorImpl*, int64_t> group_of_tensor;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.parameters()) {
    const auto [entry, is_new] =
        group_of_tensor.try_emplace(tensor.unsafeGetTensorImpl());
    if (is_new) {
      const bool decayed = options.decay_bias_and_norm || tensor.dim() >= 2;
      entry->second = find_or_add(
          grouped.groups,
          {factor_of(rates, name), decayed ? factor_of(decays, name) : 0});
      names.push_back(name);
    }
    grouped.group_of[name] = entry->second;
  }
  check_patterns_match("lr_factor", patterns_of(rates), names);
  check_patterns_match("weight_decay_factor", patterns_of(decays), names);
  return grouped;
}

int64_t find_first_trained_stage(const Model& stage, Communicator& comm) {
  // The first ranks are the stages of the first pipeline.
  return reduce_count(
      has_trainable(stage.parameters()) ? comm.rank() : comm.size(), ReduceOp::min,
      "trained stages", comm);
}

}  // namespace tandem
