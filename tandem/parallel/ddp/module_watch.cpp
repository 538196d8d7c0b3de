#include "tandem/parallel/ddp/module_watch.h"

#include <algorithm>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw ConfigError(
      "[ddp] '" + name + "' " + what +
      " after DistributedDataParallel was made; change the module first, then make "
      "DistributedDataParallel and the optimizer");
}

bool is_same(const NamedTensor& a, const NamedTensor& b) {
  return a.name == b.name && a.tensor.is_same(b.tensor);
}

void check_same(
    const std::vector<NamedTensor>& made_of, const std::vector<NamedTensor>& now) {
  if (std::equal(made_of.begin(), made_of.end(), now.begin(), now.end(), is_same)) {
    return;
  }
  const auto find = [](const std::vector<NamedTensor>& in, const std::string& name) {
    return std::find_if(
        in.begin(), in.end(), [&](const auto& entry) { return entry.name == name; });
  };
  for (const auto& entry : now) {
    if (find(made_of, entry.name) == made_of.end()) {
      refuse(entry.name, "was added");
    }
  }
  for (const auto& entry : made_of) {
    const auto found = find(now, entry.name);
    if (found == now.end()) {
      refuse(entry.name, "was removed");
    }
    if (!found->tensor.is_same(entry.tensor)) {
      refuse(entry.name, "was replaced");
    }
  }
}

}  // namespace

ModuleWatch::ModuleWatch(
    ModelArenas& arenas, std::function<std::vector<NamedTensor>()> list)
    : arenas_(arenas), list_(std::move(list)) {
  for (size_t slot = 0; slot < arenas.tensors().size(); ++slot) {
    const auto& tensor = arenas.tensors()[slot];
    if (!tensor.requires_grad()) {
      continue;
    }
    const auto hook = [this, slot, made_at = tensor.data_ptr()](const at::Tensor&) {
      if (arenas_.tensors()[slot].data_ptr() != made_at) {
        check();
      }
    };
    hooks_.emplace_back(tensor, tensor.register_hook(hook));
  }
}

ModuleWatch::~ModuleWatch() {
  for (const auto& [tensor, position] : hooks_) {
    tensor.remove_hook(position);
  }
}

void ModuleWatch::check() const {
  const auto made_of = arenas_.state();
  if (list_) {
    check_same(made_of, list_());
  }
  arenas_.check_attached();
  const auto& layout = arenas_.parameters().layout();
  for (size_t i = 0; i < layout.slots().size(); ++i) {
    const auto& slot = layout.slots()[i];
    const auto& segment = layout.segments()[static_cast<size_t>(slot.segment)];
    if (arenas_.tensors()[i].requires_grad() != segment.trainable) {
      refuse(slot.name, segment.trainable ? "was frozen" : "became trainable");
    }
  }
  // Buffers come last in both lists.
  const auto& buffers = arenas_.buffers().layout().slots();
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& entry = made_of[made_of.size() - buffers.size() + i];
    if (!entry.tensor.is_alias_of(arenas_.buffers().segment(buffers[i].segment))) {
      refuse(entry.name, "was moved");
    }
  }
}

}  // namespace tandem
