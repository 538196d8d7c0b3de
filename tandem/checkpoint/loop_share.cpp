#include "tandem/checkpoint/loop_share.h"

#include <algorithm>
#include <iterator>

#include "tandem/base/error.h"
#include "tandem/checkpoint/optimizer_tensors.h"
#include "tandem/checkpoint/state_parts.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/parallel/ddp/own_share.h"

namespace tandem {

LoopShare::LoopShare(
    const std::vector<NamedTensor>& module, DistributedDataParallel& ddp)
    : module_(module), ddp_(ddp) {
  const ArenaLayout& layout = ddp.arenas().parameters().layout();
  std::map<const at::TensorImpl*, std::string> names;
  for (const auto& bucket : layout.buckets()) {
    for (const size_t slot : bucket.slots) {
      const auto& tensor = ddp.arenas().tensors()[slot];
      parameters_[layout.slots()[slot].name] = tensor;
      names[tensor.unsafeGetTensorImpl()] = layout.slots()[slot].name;
    }
  }
  auto missing = parameters_;
  for (const auto& [name, tensor] : module) {
    const auto found = names.find(tensor.unsafeGetTensorImpl());
    if (found != names.end()) {
      name_in_arenas_[name] = found->second;
      missing.erase(found->second);
    }
  }
  if (!missing.empty()) {
    throw ConfigError(
        "[checkpoint] the parameter '" + missing.begin()->first +
        "' of DistributedDataParallel is not in the module, expected the same module "
        "for both; pass the module that DistributedDataParallel wraps");
  }
  const OwnShare& share = ddp.own_share();
  for (size_t i = 0; i < share.tensors().size(); ++i) {
    parts_[share.tensors()[i].name] = share.parts()[i];
  }
}

std::string LoopShare::divided_name(const std::string& name) const {
  const auto found = name_in_arenas_.find(name);
  return divides_model() && found != name_in_arenas_.end() ? found->second : "";
}

TrainingState LoopShare::collect(
    const std::vector<NamedTensor>& optimizer, const std::vector<int>& writers) {
  if (ddp_.shard_group_index() != 0) {
    return {};
  }
  return {collect_model(writers), collect_optimizer(optimizer, writers)};
}

std::vector<NamedTensor> LoopShare::collect_optimizer(
    const std::vector<NamedTensor>& optimizer, const std::vector<int>& writers) {
  Communicator& group = ddp_.shard_group().host_group();
  std::vector<NamedTensor> mine;
  std::vector<StatePiece> pieces;
  for (const auto& [name, tensor] : optimizer) {
    if (const auto parameter = parameter_of_state(name); !parameter.empty()) {
      pieces.push_back({name, tensor, parts_.at(parameter)});
    } else if (group.rank() == 0) {
      mine.push_back({name, tensor});
    }
  }
  const auto state = collect_pieces(
      pieces, writers,
      [this](const std::string& name) {
        return parameters_.at(parameter_of_state(name));
      },
      group);
  mine.insert(mine.end(), state.begin(), state.end());
  return mine;
}

std::vector<NamedTensor> LoopShare::collect_model(const std::vector<int>& writers) {
  Communicator& group = ddp_.shard_group().host_group();
  std::vector<StatePiece> pieces;
  for (const auto& [name, tensor] : ddp_.own_parameters()) {
    if (divides_model()) {
      pieces.push_back({name, tensor, parts_.at(name)});
    }
  }
  std::map<std::string, at::Tensor> collected;
  for (const auto& [name, tensor] : collect_pieces(
           pieces, writers,
           [this](const std::string& name) { return parameters_.at(name); }, group)) {
    collected[name] = tensor;
  }
  std::vector<NamedTensor> mine;
  for (const auto& entry : module_) {
    const auto name = divided_name(entry.name);
    const auto found = collected.find(name);
    if (found != collected.end()) {
      mine.push_back({entry.name, found->second});
    } else if (name.empty() && group.rank() == 0) {
      mine.push_back(entry);
    }
  }
  return mine;
}

std::vector<int> LoopShare::writers(const std::vector<int>& finders) const {
  std::vector<int> writers;
  std::copy_if(
      finders.begin(), finders.end(), std::back_inserter(writers),
      [this](int rank) { return rank < ddp_.shard_group().size(); });
  return writers;
}

std::vector<NamedTensor> LoopShare::part_of_parameter(
    const std::string& parameter, const NamedTensor& whole) const {
  const auto part = parts_.find(parameter);
  if (part == parts_.end()) {
    return {};
  }
  const auto laid_out = laid_out_as(parameters_.at(parameter), whole.tensor);
  return {{whole.name, part_of(laid_out, part->second).clone()}};
}

std::vector<NamedTensor> LoopShare::part_of_model(const NamedTensor& whole) const {
  const auto parameter = divided_name(whole.name);
  return parameter.empty() ? std::vector{whole} : part_of_parameter(parameter, whole);
}

std::vector<NamedTensor> LoopShare::part_of_state(const NamedTensor& whole) const {
  const auto parameter = parameter_of_state(whole.name);
  if (parameters_.count(parameter) == 0) {
    return {whole};
  }
  if (whole.tensor.dim() == 0) {
    return parts_.count(parameter) > 0 ? std::vector{whole}
                                       : std::vector<NamedTensor>();
  }
  return part_of_parameter(parameter, whole);
}

void LoopShare::load_model(const std::vector<NamedTensor>& parts) {
  std::map<std::string, at::Tensor> own;
  for (const auto& [name, tensor] : ddp_.own_parameters()) {
    own[name] = tensor;
  }
  std::vector<NamedTensor> targets;
  for (const auto& entry : module_) {
    const auto found = own.find(divided_name(entry.name));
    if (found != own.end()) {
      targets.push_back({entry.name, found->second});
    } else if (divided_name(entry.name).empty()) {
      targets.push_back(entry);
    }
  }
  copy_values(parts, targets);
  if (divides_model()) {
    ddp_.gather_updated();
  }
}

}  // namespace tandem
