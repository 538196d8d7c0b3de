#include "tandem/graph/interpreter.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include <map>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/core/recompute.h"
#include "tandem/graph/call_recorder.h"
#include "tandem/graph/checked_operators.h"
#include "tandem/graph/effects.h"
#include "tandem/graph/named_errors.h"

namespace tandem {

namespace {

// Rounds values to float16. Backward rounds their gradient.
at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kHalf).to(x.scalar_type());
}

bool is_floating(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         at::isFloatingType(value.toTensor().scalar_type());
}

size_t index_in(const Graph& graph, const Node& node) {
  return static_cast<size_t>(&node - graph.nodes.data());
}

// Returns the index of the segment that contains a node; -1 if none does.
int64_t segment_of(const std::vector<NodeRange>& segments, size_t node) {
  for (size_t i = 0; i < segments.size(); ++i) {
    if (node >= segments[i].begin && node < segments[i].end) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// Returns the ReLUs that may overwrite their input, because neither another node nor
// backward reads the input. Backward reads values that enter a segment.
std::set<const Node*> relus_in_place(
    const Graph& graph, const std::vector<NodeRange>& segments) {
  const auto uses = count_uses(graph);
  std::map<ValueId, const Node*> producers;
  for (const auto& node : graph.nodes) {
    for (const ValueId id : node.outputs) {
      producers[id] = &node;
    }
  }
  std::set<const Node*> found;
  for (const auto& node : graph.nodes) {
    if (node.target != "aten::relu" ||
        node.arguments[0].kind != Argument::Kind::value) {
      continue;
    }
    const ValueId input = node.arguments[0].value;
    const auto producer = producers.find(input);
    if (uses[static_cast<size_t>(input)] == 1 && input != graph.output &&
        producer != producers.end() &&
        operator_row(producer->second->target).has(kKeepsOnlyInput) &&
        segment_of(segments, index_in(graph, *producer->second)) ==
            segment_of(segments, index_in(graph, node))) {
      found.insert(&node);
    }
  }
  return found;
}

// Returns the number of samples in an input of this shape; 0 if no dimension grows with
// the samples.
int64_t count_samples(const std::vector<Size>& shape, const at::Tensor& input) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].per_sample != 0) {
      return (input.size(static_cast<int64_t>(i)) - shape[i].fixed) /
             shape[i].per_sample;
    }
  }
  return 0;
}

// Returns the operator of LibTorch that computes a node. A view fails if the strides of
// its input are not those of the exporting PyTorch. So a view whose memory no node
// changes may be a copy.
const char* operator_for(const Node& node, bool relu_in_place, const Effects& effects) {
  const bool is_view = (node.target == "aten::view" && node.overload.empty()) ||
                       node.target == "aten::_unsafe_view";
  return relu_in_place                                     ? "aten::relu_"
         : is_view && !effects.is_changed(node.outputs[0]) ? "aten::reshape"
                                                           : node.target.c_str();
}

bool is_device(const c10::Argument& argument) {
  return argument.type()->str().rfind("Device", 0) == 0;
}

}  // namespace

// A node, prepared for repeated calls.
struct Interpreter::Step {
  const Node* node;
  const OperatorRow* row;
  // Not set if tandem computes the operator.
  c10::optional<c10::OperatorHandle> handle;
  // May be null.
  ArgumentCheck check = nullptr;
  // The arguments; those in `changing` are set in each call.
  std::vector<c10::IValue> arguments;
  std::vector<size_t> changing;
  bool changes_state = false;
  // The value whose memory is the output in evaluation, if the node does not run then;
  // otherwise -1.
  ValueId unchanged = -1;
  // Values that no later node reads.
  std::vector<ValueId> last_used;
};

// Nodes whose values training does not keep.
struct Interpreter::Segment {
  NodeRange nodes;
  // Values of earlier nodes, or of the input, that the nodes read.
  std::vector<ValueId> inputs;
  // Values that later nodes read, or the output.
  std::vector<ValueId> outputs;
};

Interpreter::Interpreter(
    const Graph& graph, StackFunction stack_statistics, at::Device device,
    const std::vector<NodeRange>& recomputed)
    : graph_(graph), stack_statistics_(std::move(stack_statistics)), device_(device) {
  const Effects effects(graph);
  for (const auto& value : graph.values) {
    constants_.push_back(
        value.kind == ValueKind::constant ? value.tensor.to(device) : at::Tensor());
  }
  const auto in_place = relus_in_place(graph, recomputed);
  for (const auto& node : graph.nodes) {
    Step step;
    step.node = &node;
    step.row = &operator_row(node.target);
    if (!step.row->runs()) {
      step.handle = c10::Dispatcher::singleton().findSchemaOrThrow(
          operator_for(node, in_place.count(&node) > 0, effects),
          node.overload.c_str());
      step.check = argument_check(node.target);
    }
    const auto& arguments = schema_of(node).arguments();
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      step.arguments.push_back(
          is_device(arguments[i]) ? c10::IValue(device) : node.arguments[i].constant);
      if (node.arguments[i].kind != Argument::Kind::constant) {
        step.changing.push_back(i);
      }
    }
    step.changes_state = effects.changes_state(node);
    const ValueId changed = effects.changed(node);
    const bool is_buffer =
        changed >= 0 && graph.value(changed).kind == ValueKind::buffer;
    step.unchanged =
        is_buffer && !effects.is_scratch(changed) ? written_value(node) : -1;
    steps_.push_back(std::move(step));
  }
  for (const auto& nodes : recomputed) {
    segments_.push_back({nodes, {}, {}});
  }
  plan_copies(effects);
  find_last_uses();
  find_crossing_values();
}

void Interpreter::plan_copies(const Effects& effects) {
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    const ValueKind kind = graph_.values[i].kind;
    if (kind == ValueKind::output || effects.root(id) != id ||
        !effects.is_changed(id)) {
      continue;
    }
    if (kind == ValueKind::input || kind == ValueKind::constant) {
      copied_.push_back(id);
    } else if (kind == ValueKind::parameter || effects.is_scratch(id)) {
      copied_in_evaluation_.push_back(id);
    }
  }
}

void Interpreter::find_last_uses() {
  std::set<ValueId> used = {graph_.output};
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const auto see = [&](ValueId id) {
      if (id >= 0 && used.insert(id).second) {
        step->last_used.push_back(id);
      }
    };
    for_each_value(*step->node, see);
    for (const ValueId id : step->node->outputs) {
      see(id);
    }
  }
}

void Interpreter::find_crossing_values() {
  for (auto& segment : segments_) {
    std::set<ValueId> inside;
    std::set<ValueId> inputs;
    for (size_t i = segment.nodes.begin; i < segment.nodes.end; ++i) {
      for_each_value(graph_.nodes[i], [&](ValueId id) {
        const ValueKind kind = graph_.value(id).kind;
        if ((kind == ValueKind::output || kind == ValueKind::input) &&
            inside.count(id) == 0 && inputs.insert(id).second) {
          segment.inputs.push_back(id);
        }
      });
      inside.insert(graph_.nodes[i].outputs.begin(), graph_.nodes[i].outputs.end());
    }
    std::set<ValueId> read = {graph_.output};
    for (size_t i = segment.nodes.end; i < graph_.nodes.size(); ++i) {
      for_each_value(graph_.nodes[i], [&](ValueId id) { read.insert(id); });
    }
    for (const ValueId id : inside) {
      if (read.count(id) > 0) {
        segment.outputs.push_back(id);
      }
    }
  }
}

Interpreter::~Interpreter() = default;

// One forward pass.
class Interpreter::Pass {
 public:
  Pass(const Interpreter& of, const at::Tensor& input, const ForwardContext& context)
      : Pass(
            of, count_samples(of.graph_.value(of.graph_.input).shape, input), context) {
    check_samples(graph_, samples_, "the size of the batches");
    values_[static_cast<size_t>(graph_.input)] =
        context.rounding == Rounding::fp16_o2 ? rounded(input) : input;
    copy(of.copied_);
    if (!context.training) {
      copy(of.copied_in_evaluation_);
    }
  }

  at::Tensor run() {
    const bool recomputes = context_.training && c10::GradMode::is_enabled();
    size_t next = 0;
    for (const Segment& segment : of_.segments_) {
      if (recomputes) {
        run({next, segment.nodes.begin});
        run_segment(segment);
        next = segment.nodes.end;
      }
    }
    run({next, of_.steps_.size()});
    return tensor(graph_.output);
  }

 private:
  // A pass without values.
  Pass(const Interpreter& of, int64_t samples, const ForwardContext& context)
      : of_(of),
        graph_(of.graph_),
        constants_(of.constants_),
        stack_statistics_(of.stack_statistics_),
        device_(of.device_),
        values_(graph_.values.size()),
        context_(context),
        samples_(samples) {}

  void run(const NodeRange& nodes) {
    for (size_t i = nodes.begin; i < nodes.end; ++i) {
      const Step& step = of_.steps_[i];
      if (context_.again && step.changes_state) {
        continue;
      }
      with_named_errors(
          [&] { run(step); }, [&] { return name_for_messages(*step.node) + " fails"; });
    }
  }

  void run_segment(const Segment& segment) {
    const auto results = recompute(
        [&of = of_, &segment, samples = samples_, context = context_](
            const std::vector<at::Tensor>& inputs, bool again) mutable {
          context.again = again;
          if (again && context.before_again) {
            context.before_again();
          }
          return Pass(of, samples, context).run(segment, inputs);
        },
        tensors(segment.inputs));
    for (size_t i = 0; i < segment.outputs.size(); ++i) {
      values_[static_cast<size_t>(segment.outputs[i])] = results[i];
    }
    for (size_t i = segment.nodes.begin; i < segment.nodes.end; ++i) {
      release(of_.steps_[i].last_used);
    }
  }

  std::vector<at::Tensor> run(
      const Segment& segment, const std::vector<at::Tensor>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      values_[static_cast<size_t>(segment.inputs[i])] = inputs[i];
    }
    run(segment.nodes);
    return tensors(segment.outputs);
  }

  std::vector<at::Tensor> tensors(const std::vector<ValueId>& ids) const {
    std::vector<at::Tensor> all;
    for (const ValueId id : ids) {
      all.push_back(tensor(id));
    }
    return all;
  }

  void release(const std::vector<ValueId>& ids) {
    for (const ValueId id : ids) {
      values_[static_cast<size_t>(id)].reset();
    }
  }

  const at::Tensor& tensor(ValueId id) const {
    const Value& value = graph_.value(id);
    const auto i = static_cast<size_t>(id);
    return values_[i].defined()                ? values_[i]
           : value.kind == ValueKind::constant ? constants_[i]
                                               : value.tensor;
  }

  void copy(const std::vector<ValueId>& ids) {
    for (const ValueId id : ids) {
      values_[static_cast<size_t>(id)] = tensor(id).clone();
    }
  }

  c10::IValue value_of(const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Kind::value:
        return tensor(argument.value);
      case Argument::Kind::size:
        return argument.size.at(samples_);
      case Argument::Kind::list:
        return list_of(argument.list);
      case Argument::Kind::constant:
        break;
    }
    return argument.constant;
  }

  // Returns a list of tensors, of tensors and Nones, or of sizes.
  c10::IValue list_of(const std::vector<Argument>& elements) const {
    bool sizes = true;
    bool nones = false;
    for (const auto& element : elements) {
      sizes =
          sizes && (element.kind == Argument::Kind::size || element.constant.isInt());
      nones = nones || element.is_none();
    }
    if (sizes) {
      std::vector<int64_t> list;
      for (const auto& element : elements) {
        list.push_back(value_of(element).toInt());
      }
      return list;
    }
    if (nones) {
      c10::List<c10::optional<at::Tensor>> list;
      for (const auto& element : elements) {
        list.push_back(value_of(element).toOptional<at::Tensor>());
      }
      return list;
    }
    c10::List<at::Tensor> list;
    for (const auto& element : elements) {
      list.push_back(value_of(element).toTensor());
    }
    return list;
  }

  void run(const Step& step) {
    if (step.unchanged >= 0 && !context_.training) {
      store(step, {tensor(step.unchanged)});
      return;
    }
    std::vector<c10::IValue> stack = step.arguments;
    for (const size_t i : step.changing) {
      stack[i] = value_of(step.node->arguments[i]);
    }
    const bool rounds = is_fp16(context_.rounding);
    if (rounds && step.row->rounds == RoundedValues::all) {
      round_all(stack);
    }
    const OperatorCall call{graph_, *step.node, samples_,         device_,
                            stack,  context_,   stack_statistics_};
    if (step.row->run != nullptr) {
      stack = {step.row->run(call)};
    } else if (step.row->run_list != nullptr) {
      stack = step.row->run_list(call);
    } else {
      if (step.check != nullptr) {
        check_arguments(step, stack);
      }
      step.handle->callBoxed(&stack);
    }
    if (rounds && rounds_output(step.row->rounds)) {
      round_all(stack);
    }
    store(step, stack);
  }

  // A repetition of a recorded pass checks its own values.
  static void check_arguments(const Step& step, const std::vector<c10::IValue>& stack) {
    const auto& schema = step.handle->schema();
    if (auto* recorder = CallRecorder::current()) {
      auto arguments = stack;
      recorder->call_function(
          arguments, {},
          [check = step.check, &schema](auto& values, const SampleContext&) {
            check(schema, values);
            values.clear();
          });
    } else {
      step.check(schema, stack);
    }
  }

  bool rounds_output(RoundedValues values) const {
    return values == RoundedValues::output || values == RoundedValues::all ||
           (values == RoundedValues::output_in_o2 &&
            context_.rounding == Rounding::fp16_o2);
  }

  static void round_all(std::vector<c10::IValue>& stack) {
    for (auto& value : stack) {
      if (is_floating(value)) {
        value = rounded(value.toTensor());
      }
    }
  }

  void store(const Step& step, const std::vector<c10::IValue>& results) {
    const auto& outputs = step.node->outputs;
    const bool list = results.size() == 1 && results[0].isTensorList();
    const auto elements =
        list ? results[0].toTensorVector() : std::vector<at::Tensor>();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] >= 0) {
        TORCH_CHECK(
            i < (list ? elements.size() : results.size()),
            "the operator returns fewer tensors");
        const auto& result = list ? elements.at(i) : results.at(i).toTensor();
        check_shape(*step.node, outputs[i], result);
        values_[static_cast<size_t>(outputs[i])] = result;
      }
    }
    if (context_.after_node && !step.changes_state && !outputs.empty() &&
        outputs[0] >= 0) {
      context_.after_node(*step.node, tensor(outputs[0]));
    }
    release(step.last_used);
  }

  // The shapes in a file come from another PyTorch, and may be damaged.
  void check_shape(const Node& node, ValueId id, const at::Tensor& found) const {
    if (!graph_.states_shapes) {
      return;
    }
    const auto& shape = graph_.value(id).shape;
    bool equal = shape.size() == static_cast<size_t>(found.dim());
    for (size_t i = 0; equal && i < shape.size(); ++i) {
      equal = shape[i].at(samples_) == found.size(static_cast<int64_t>(i));
    }
    if (!equal) {
      throw ConfigError(fmt::format(
          "[model] {} computes the shape {}, expected {} as the network states; export "
          "the network again",
          name_for_messages(node), c10::str(found.sizes()), text_of(shape)));
    }
  }

  const Interpreter& of_;
  const Graph& graph_;
  const std::vector<at::Tensor>& constants_;
  const StackFunction& stack_statistics_;
  at::Device device_;
  // By ValueId. Undefined for parameters, buffers and constants that are not copied.
  std::vector<at::Tensor> values_;
  const ForwardContext& context_;
  int64_t samples_;
};

at::Tensor Interpreter::run(
    const at::Tensor& input, const ForwardContext& context) const {
  return Pass(*this, input, context).run();
}

}  // namespace tandem
