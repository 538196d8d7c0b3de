#pragma once

#include <string>

namespace tandem {

/// Returns advice for a setting that other tools have and tandem does not, such as ";
/// use lr" for "learning_rate". Returns "" for other names. `name` is a recipe key or a
/// flag, with dashes or underscores.
std::string advice_on(const std::string& name);

}  // namespace tandem
