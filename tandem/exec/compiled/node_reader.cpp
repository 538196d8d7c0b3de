#include "tandem/exec/compiled/node_reader.h"

#include <fmt/core.h>

#include <vector>

#include "tandem/base/text.h"

namespace tandem {

double NodeReader::number(size_t index) const {
  const auto& value = constant(index);
  return value.isDouble() ? value.toDouble()
         : value.isInt()  ? static_cast<double>(value.toInt())
                          : -1;
}

int64_t NodeReader::square(size_t index, const char* what, int64_t missing) {
  const auto& value = constant(index);
  if (value.isInt()) {
    return value.toInt();
  }
  const auto sizes =
      value.isIntList() ? value.toIntVector() : std::vector<int64_t>{-1, -2};
  if (sizes.empty()) {
    return missing;
  }
  expect(
      sizes.size() == 1 || (sizes.size() == 2 && sizes[0] == sizes[1]),
      std::string("its ") + what + " is not square");
  return sizes[0];
}

void NodeReader::expect_square(size_t index, const char* what, int64_t wanted) {
  const int64_t found = square(index, what);
  expect(found == wanted, fmt::format("its {} is {}, not {}", what, found, wanted));
}

const Value* NodeReader::value(size_t index) const {
  const Argument& argument = node_.arguments[index];
  return argument.kind == Argument::Kind::value ? &graph_.value(argument.value)
                                                : nullptr;
}

const Value* NodeReader::state(size_t index, const std::string& name) {
  const Value* found = value(index);
  const bool is_state = found != nullptr && (found->kind == ValueKind::parameter ||
                                             found->kind == ValueKind::buffer);
  if (!is_state || !ends_with(found->state_name, "." + name)) {
    expect(false, "it has no " + name);
    return nullptr;
  }
  const auto owner =
      found->state_name.substr(0, found->state_name.size() - name.size() - 1);
  expect(
      layer.name.empty() || layer.name == owner,
      "its tensors belong to several modules");
  layer.name = owner;
  const Value* weight = value(1);
  expect(
      name == "weight" || (weight != nullptr && !weight->shape.empty() &&
                           found->shape == std::vector<Size>{weight->shape[0]}),
      "its " + name + " has another size than its weight");
  return found;
}

}  // namespace tandem
