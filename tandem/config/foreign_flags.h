#pragma once

#include <string>

namespace tandem {

/// What to do instead, for a setting that other tools have and tandem does not: such as
/// "; the loader needs no workers, leave it out" for "num_workers". "" for other names.
/// `name` is a recipe's key or a flag, with dashes or underscores.
std::string advice_on(const std::string& name);

}  // namespace tandem
