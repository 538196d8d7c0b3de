#pragma once

#include <string>
#include <vector>

#include "tandem/graph/graph.h"

namespace tandem {

/// A trained parameter that gets no gradient, because each path from the parameter to
/// the output has an operator whose derivative is 0, such as sign() or detach().
struct UntrainedParameter {
  // Name in Python's state_dict().
  std::string name;
  // The first such operator after the parameter; null if no path to the output exists.
  const Node* operation = nullptr;
};

/// Returns the trained parameters of a graph that get no gradient, in order of
/// registration. A torch.autograd.Function is a frequent cause: torch.export keeps its
/// forward(), but not its backward().
[[nodiscard]] std::vector<UntrainedParameter> find_untrained(const Graph& graph);

}  // namespace tandem
