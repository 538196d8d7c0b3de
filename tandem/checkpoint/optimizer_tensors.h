#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace torch {
namespace optim {
class Optimizer;
}  // namespace optim
}  // namespace torch

namespace tandem {

// The options and the state of a torch::optim optimizer as named tensors, which do not
// depend on addresses:
//   group.0/lr             scalar: an option of the first parameter group
//   exp_avg/fc1.weight     state of the parameter fc1.weight
//   old_dirs.0/fc1.weight  first element of a list (LBFGS)
//
// A field without a value has no tensor.

/// Returns the parameter to which a tensor of the state belongs, such as fc1.weight; ""
/// for an option.
std::string parameter_of_state(const std::string& name);

/// Returns the name of an optimizer's class, such as "Adam". Throws ConfigError unless
/// the class is of LibTorch or of optim/torch_optim.h.
std::string optimizer_name(const torch::optim::Optimizer& optimizer);

/// Returns the options and the state of `optimizer`. `parameters` are the module's
/// parameters. The tensors of the state share the optimizer's memory.
///
/// Throws ConfigError if the optimizer has a parameter that is not in `parameters`.
std::vector<NamedTensor> optimizer_tensors(
    torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters);

/// Reads the tensors that optimizer_tensors() returned for an optimizer of the same
/// class. Returns a function that replaces all options and the whole state of
/// `optimizer`, which until then is unchanged. Call the function at most once. `path`
/// is the file of the tensors in errors.
///
/// Throws ConfigError with the first tensor that is missing, or that this optimizer
/// does not have.
[[nodiscard]] std::function<void()> read_optimizer(
    torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters,
    const std::vector<NamedTensor>& tensors, const std::string& path);

}  // namespace tandem
