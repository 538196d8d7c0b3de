#pragma once

#include <string>

namespace tandem {

/// Returns advice for the name of a setting in other tools: "; use lr" for
/// "learning_rate", for example. Returns "" for unknown names. `name` is a recipe key
/// or a flag, with dashes or underscores.
std::string advice_on(const std::string& name);

}  // namespace tandem
