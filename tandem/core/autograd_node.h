#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <utility>

namespace tandem {

/// Owner of a node of autograd in this LibTorch: std::shared_ptr or, in newer versions,
/// c10::intrusive_ptr.
using NodeOwner = decltype(torch::autograd::Edge::function);

template <typename Node, typename... Arguments>
NodeOwner make_node(std::shared_ptr<torch::autograd::Node>*, Arguments&&... arguments) {
  return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
}
template <typename Node, typename... Arguments>
NodeOwner make_node(
    c10::intrusive_ptr<torch::autograd::Node>*, Arguments&&... arguments) {
  return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
}

/// Makes a node of the class Node.
template <typename Node, typename... Arguments>
NodeOwner make_node(Arguments&&... arguments) {
  return make_node<Node>(
      static_cast<NodeOwner*>(nullptr), std::forward<Arguments>(arguments)...);
}

}  // namespace tandem
