// Networks of files: a graph of operators that tandem accepts runs forward and backward
// without an access outside of its tensors. An input is a program that chooses
// operators, arguments, shapes and numbers. Tensors lie next to pages that cannot be
// accessed, because LibTorch is not instrumented.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/core/torch_compat.h"
#include "tandem/graph/checked_operators.h"
#include "tandem/graph/interpreter.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tandem::Argument;
using tandem::Graph;
using tandem::Node;
using tandem::Value;
using tandem::ValueId;
using tandem::ValueKind;

// Places each tensor at the end of its pages, before a page without access.
class GuardedMemory : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) TANDEM_ALLOCATE_CONST override {
    TORCH_CHECK(bytes <= kMostBytes, "not enough memory");
    const size_t used = (bytes + 63) / 64 * 64;
    const size_t inner = (used + kPage - 1) / kPage * kPage;
    auto* whole = static_cast<char*>(mmap(
        nullptr, inner + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    tandem::fuzz::expect(whole != MAP_FAILED, "memory is reserved");
    mprotect(whole + kPage, inner, PROT_READ | PROT_WRITE);
    auto* block = new Block{whole, inner + 2 * kPage};
    return {whole + kPage + inner - used, block, &free_block, c10::Device(at::kCPU)};
  }
#if TANDEM_ALLOCATORS_COPY
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#endif

 private:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kMostBytes = size_t{32} << 20;
  struct Block {
    char* whole;
    size_t size;
  };
  static void free_block(void* context) {
    auto* block = static_cast<Block*>(context);
    munmap(block->whole, block->size);
    delete block;
  }
};

// Reads the choices of a program. After the end of the input, every choice is 0.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool done() const {
    return size_ == 0;
  }
  size_t below(size_t count) {
    const size_t low = byte();
    return (count > 256 ? low + 256 * byte() : low) % count;
  }
  bool rarely() {
    return below(8) == 7;
  }
  int64_t integer() {
    constexpr int64_t kLarge[] = {
        100,       -100,     1000,        int64_t{1} << 31,
        1L << 32,  1L << 34, -(1L << 34), (int64_t{1} << 31) - 1,
        INT64_MAX, INT64_MIN};
    constexpr int64_t kSmall[] = {0, 1, 2, 3, 1, 2, 4, -1, -2, 6};
    return rarely() ? kLarge[below(std::size(kLarge))] : kSmall[below(10)];
  }
  double number() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kNumbers[] = {0,   1,    0.5,   2,         -1,         1e-9,
                                   1e9, 1e30, -1e30, kInfinity, -kInfinity, NAN};
    return kNumbers[below(std::size(kNumbers))];
  }
  std::vector<int64_t> shape() {
    static const std::vector<int64_t> kShapes[] = {
        {},           {0},          {3},          {2, 3},          {4, 4},
        {2, 4, 6},    {2, 0, 3},    {1, 1, 4, 4}, {2, 4, 6, 6},    {4, 4, 3, 3},
        {4, 2, 3, 3}, {2, 3, 3, 2}, {1, 1, 2},    {1, 2, 4, 4, 4}, {1, 3, 3, 3, 3}};
    return kShapes[below(std::size(kShapes))];
  }

 private:
  size_t byte() {
    if (size_ == 0) {
      return 0;
    }
    --size_;
    return *data_++;
  }

  const uint8_t* data_;
  size_t size_;
};

// Operators of ATen, in order of their names.
const std::vector<c10::OperatorName>& operators() {
  static const std::vector<c10::OperatorName> all = [] {
    auto names = c10::Dispatcher::singleton().getAllOpNames();
    names.erase(
        std::remove_if(
            names.begin(), names.end(),
            [](const auto& name) {
              return name.name.rfind("aten::", 0) != 0 ||
                     tandem::schema_of(name.name, name.overload_name) == nullptr;
            }),
        names.end());
    std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
      return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
    });
    return names;
  }();
  return all;
}

// Builds a graph from an input.
class Builder {
 public:
  explicit Builder(Choices choices) : choices_(choices) {
    Value input;
    input.kind = ValueKind::input;
    input.name = "x";
    input.dtype = at::kFloat;
    input.shape = tandem::batch_shape({4, 6, 6});
    graph_.input = tandem::add_value(graph_, std::move(input));
  }

  Graph build() {
    for (int i = 0; i < 4 && !choices_.done(); ++i) {
      add_node();
    }
    graph_.output = static_cast<ValueId>(graph_.values.size()) - 1;
    for (auto id = graph_.output; id > 0; --id) {
      if (graph_.value(id).kind == ValueKind::output) {
        graph_.output = id;
        break;
      }
    }
    return std::move(graph_);
  }

 private:
  ValueId tensor() {
    if (choices_.below(4) == 0) {
      return static_cast<ValueId>(choices_.below(graph_.values.size()));
    }
    const auto shape = choices_.shape();
    const bool is_index = choices_.below(3) == 0;
    auto elements = is_index ? at::full(shape, choices_.integer(), at::kLong)
                             : at::full(shape, choices_.number(), at::kFloat);
    if (!is_index && choices_.below(2) == 0) {
      elements = at::linspace(-1, 2, elements.numel(), at::kFloat).view(shape);
    }
    if (elements.numel() > 0 && choices_.rarely()) {
      elements.view(-1)[0] = choices_.integer();
    }
    if (is_index && choices_.rarely()) {
      elements = elements.to(choices_.rarely() ? at::kBool : at::kInt);
    }
    Value value;
    value.kind = is_index ? ValueKind::constant : ValueKind::parameter;
    value.name = value.state_name = "t" + std::to_string(graph_.values.size());
    value.dtype = elements.scalar_type();
    value.shape = tandem::fixed_shape(elements.sizes());
    value.tensor = elements.set_requires_grad(!is_index);
    return tandem::add_value(graph_, std::move(value));
  }

  Argument argument(const c10::Argument& wanted, const c10::TypePtr& type) {
    const auto inner = tandem::without_optional(type);
    if (inner != type && choices_.below(2) == 0) {
      return {};
    }
    if (const auto list = inner->cast<c10::ListType>()) {
      return list_of(wanted, list->getElementType());
    }
    switch (inner->kind()) {
      case c10::TypeKind::TensorType:
        return Argument::of_value(tensor());
      case c10::TypeKind::IntType:
        return Argument::of(choices_.integer());
      case c10::TypeKind::FloatType:
        return Argument::of(choices_.number());
      case c10::TypeKind::BoolType:
        return Argument::of(choices_.below(2) == 0);
      case c10::TypeKind::NumberType:
        return choices_.below(2) == 0 ? Argument::of(choices_.integer())
                                      : Argument::of(choices_.number());
      case c10::TypeKind::StringType:
        return Argument::of(std::string(choices_.below(2) == 0 ? "mean" : "floor"));
      default:
        return {};
    }
  }

  Argument list_of(const c10::Argument& wanted, const c10::TypePtr& type) {
    size_t count = static_cast<size_t>(std::max(wanted.N().value_or(1), 1));
    count = count == 1 || choices_.rarely() ? choices_.below(5) : count;
    if (tandem::without_optional(type)->kind() == c10::TypeKind::TensorType) {
      std::vector<Argument> list;
      for (size_t i = 0; i < count; ++i) {
        list.push_back(argument(wanted, type));
      }
      return Argument::of_list(std::move(list));
    }
    if (type->kind() == c10::TypeKind::FloatType) {
      return Argument::of(std::vector<double>(count, choices_.number()));
    }
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < count; ++i) {
      numbers.push_back(choices_.integer());
    }
    return Argument::of(std::move(numbers));
  }

  void add_node() {
    const auto& all = operators();
    const auto& name = all[choices_.below(all.size())];
    Node node;
    node.name = "n" + std::to_string(graph_.nodes.size());
    node.target = name.name;
    node.overload = name.overload_name;
    const auto& schema = tandem::schema_of(node);
    for (const auto& wanted : schema.arguments()) {
      const bool keeps = wanted.default_value() && choices_.below(2) == 0;
      node.arguments.push_back(
          keeps ? Argument::of(*wanted.default_value())
                : argument(wanted, wanted.type()));
    }
    Value output;
    output.kind = ValueKind::output;
    output.name = node.name;
    output.dtype = at::kFloat;
    output.shape = graph_.value(graph_.input).shape;
    node.outputs = {tandem::add_value(graph_, std::move(output))};
    node.number = static_cast<int64_t>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(node));
  }

  Choices choices_;
  Graph graph_;
};

void run(const Graph& graph) {
  tandem::ForwardContext context;
  context.samples.seed = 1;
  const at::Tensor input = at::linspace(-1, 1, 2 * 4 * 6 * 6).view({2, 4, 6, 6});
  const tandem::Interpreter interpreter(graph, {});
  const at::Tensor output = interpreter.run(input, context);
  if (output.requires_grad() && output.is_floating_point()) {
    output.sum().backward();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static GuardedMemory memory;
  static const bool is_set = [] {
    c10::SetCPUAllocator(&memory, 200);
    return true;
  }();
  tandem::fuzz::expect(is_set, "tensors have guarded memory");
  const Graph graph = Builder({data, size}).build();
  tandem::fuzz::accepts([&] {
    tandem::verify(graph);
    tandem::check_operators(graph);
    try {
      run(graph);
    } catch (const tandem::Error&) {
      throw;
    } catch (const std::exception&) {
      // An error of backward().
    }
  });
  return 0;
}
