#pragma once

#include <string>

namespace tandem {

/// Throws ConfigError for a `loss` that no run can have: one that does not exist, or
/// mse, since the target of every sample of a Dataset is a class. Needs no LibTorch.
void check_loss(const std::string& loss);

}  // namespace tandem
