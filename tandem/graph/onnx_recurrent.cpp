// Recurrent layers in ONNX.

#include <array>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

namespace {

// A kind of recurrent layer. The row of the operator has its ONNX type, or the
// activation of an RNN.
struct RecurrentKind {
  std::string type;
  std::string activation;
  // PyTorch's position of each gate of ONNX: i, o, f, c of LSTM, which PyTorch orders
  // i, f, c, o; z, r, h of GRU, which PyTorch orders r, z, h.
  std::vector<int64_t> gates;
};

RecurrentKind recurrent_kind(const OnnxCall& call) {
  const std::string type = call.row.type;
  if (type == "LSTM") {
    return {type, "", {0, 3, 1, 2}};
  }
  if (type == "GRU") {
    return {type, "", {1, 0, 2}};
  }
  return {"RNN", type, {0}};
}

// Names of the weights of one direction of a layer; the biases may be "".
struct RecurrentWeights {
  std::string input;
  std::string hidden;
  std::string input_bias;
  std::string hidden_bias;
};

// State of one layer: [directions, samples, hidden]. `cell` is "" except for LSTM.
struct RecurrentState {
  std::string hidden;
  std::string cell;
};

// Returns a weight or a bias with the gates in the order of ONNX.
std::string with_gates_of_onnx(
    const OnnxCall& call, const RecurrentKind& kind, int64_t hidden,
    const std::string& weight) {
  if (kind.gates.size() == 1) {
    return weight;
  }
  std::vector<int64_t> rows;
  for (const int64_t gate : kind.gates) {
    for (int64_t i = 0; i < hidden; ++i) {
      rows.push_back(gate * hidden + i);
    }
  }
  return call.add("Gather", {weight, call.to.integers(rows)});
}

// Stacks the tensors of the directions along a new first dimension.
std::string stacked(const OnnxCall& call, OnnxNames parts) {
  for (auto& part : parts) {
    part = call.add("Unsqueeze", {part, call.to.integers({0})});
  }
  return parts.size() == 1 ? parts[0]
                           : call.add("Concat", parts, {{"axis", int64_t{0}}});
}

// Adds a layer of one or two directions. Returns the outputs of the ONNX operator: [T,
// directions, N, hidden], the last hidden state and, for LSTM, the last cell state.
OnnxNames recurrent_layer(
    const OnnxCall& call, const RecurrentKind& kind, int64_t hidden,
    const std::string& x, const std::vector<RecurrentWeights>& directions,
    const RecurrentState& state) {
  OnnxNames input;
  OnnxNames recurrent;
  OnnxNames biases;
  const auto ordered = [&](const std::string& weight) {
    return with_gates_of_onnx(call, kind, hidden, weight);
  };
  for (const auto& weights : directions) {
    input.push_back(ordered(weights.input));
    recurrent.push_back(ordered(weights.hidden));
    if (!weights.input_bias.empty()) {
      biases.push_back(call.add(
          "Concat", {ordered(weights.input_bias), ordered(weights.hidden_bias)},
          {{"axis", int64_t{0}}}));
    }
  }
  const bool both = directions.size() == 2;
  std::vector<OnnxAttribute> attributes = {
      {"hidden_size", hidden},
      {"direction", std::string(both ? "bidirectional" : "forward")}};
  if (kind.type == "GRU") {
    attributes.push_back({"linear_before_reset", int64_t{1}});
  }
  if (!kind.activation.empty()) {
    attributes.push_back(
        {"activations", std::vector<std::string>(directions.size(), kind.activation)});
  }
  return call.to.add_several(
      kind.type,
      {x, stacked(call, input), stacked(call, recurrent),
       biases.empty() ? "" : stacked(call, biases), "", state.hidden, state.cell},
      kind.type == "LSTM" ? 3 : 2, attributes);
}

std::string first_two_swapped(const OnnxCall& call, const std::string& x) {
  return call.add("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
}

// Splits the list of weights into layers and directions.
std::vector<RecurrentWeights> recurrent_weights(
    const OnnxCall& call, int64_t layers, int64_t directions) {
  const auto names = call.tensors(2);
  const bool has_biases = call.flag(3);
  const size_t each = has_biases ? 4 : 2;
  const auto count = static_cast<size_t>(layers * directions);
  if (names.size() != each * count) {
    throw OnnxObstacle{"with proj_size, which the operator LSTM of ONNX lacks"};
  }
  std::vector<RecurrentWeights> weights;
  for (size_t i = 0; i < names.size(); i += each) {
    weights.push_back(
        {names[i], names[i + 1], has_biases ? names[i + 2] : "",
         has_biases ? names[i + 3] : ""});
  }
  return weights;
}

std::string states_of_layers(const OnnxCall& call, const OnnxNames& states) {
  return states.size() == 1 ? call.add("Identity", states)
                            : call.add("Concat", states, {{"axis", int64_t{0}}});
}

}  // namespace

// lstm(x, [h, c], weights, has_biases, layers, dropout, train, bidirectional,
// batch_first); gru, rnn_tanh and rnn_relu have h instead of [h, c].
OnnxNames onnx_recurrent(const OnnxCall& call) {
  if (call.node.overload != "input") {
    throw OnnxObstacle{"on a packed sequence"};
  }
  const auto kind = recurrent_kind(call);
  const bool is_lstm = kind.type == "LSTM";
  const int64_t layers = call.integer(4);
  const int64_t directions = call.flag(7) ? 2 : 1;
  const bool batch_first = call.flag(8);
  const auto weights = recurrent_weights(call, layers, directions);
  const int64_t hidden =
      call.graph.value(call.node.arguments[2].list[1].value).shape[1].fixed;
  const auto states = is_lstm ? call.tensors(1) : OnnxNames{call.tensor(1)};
  auto x = batch_first ? first_two_swapped(call, call.tensor(0)) : call.tensor(0);
  std::array<OnnxNames, 2> last;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t begin = layer * directions;
    OnnxNames initial;
    for (const auto& state : states) {
      initial.push_back(
          layers == 1 ? state : call.slice(state, 0, begin, begin + directions));
    }
    const auto outputs = recurrent_layer(
        call, kind, hidden, x,
        {weights.begin() + begin, weights.begin() + begin + directions},
        {initial[0], is_lstm ? initial[1] : ""});
    // [T, directions, N, hidden] becomes [T, N, directions * hidden].
    x = call.add(
        "Transpose", {outputs[0]}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    x = call.add("Reshape", {x, call.to.integers({0, 0, directions * hidden})});
    last[0].push_back(outputs[1]);
    last[1].push_back(outputs.back());
  }
  OnnxNames results = {batch_first ? first_two_swapped(call, x) : x};
  for (size_t i = 0; i < states.size(); ++i) {
    results.push_back(call.uses(i + 1) ? states_of_layers(call, last[i]) : "");
  }
  return results;
}

// lstm_cell(x, [h, c], w_ih, w_hh, b_ih, b_hh); the other cells have h instead of [h,
// c]. A cell is a layer for a sequence of one element.
OnnxNames onnx_recurrent_cell(const OnnxCall& call) {
  const auto kind = recurrent_kind(call);
  const bool is_lstm = kind.type == "LSTM";
  const auto one = [&](const std::string& value) {
    return call.add("Unsqueeze", {value, call.to.integers({0})});
  };
  const auto states = is_lstm ? call.tensors(1) : OnnxNames{call.tensor(1)};
  const auto outputs = recurrent_layer(
      call, kind, call.fixed_size(3, 1), one(call.tensor(0)),
      {{call.tensor(2), call.tensor(3), call.tensor(4), call.tensor(5)}},
      {one(states[0]), is_lstm ? one(states[1]) : ""});
  OnnxNames results;
  for (size_t i = 1; i < outputs.size(); ++i) {
    results.push_back(call.add("Squeeze", {outputs[i], call.to.integers({0})}));
  }
  return results;
}

}  // namespace tandem
