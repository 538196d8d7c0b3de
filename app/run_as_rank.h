#pragma once

#include <functional>

namespace tandem::app {

/// Runs what a rank does and returns its exit code. Under our launcher an error is
/// left with it: it prints, once, what went wrong first. Elsewhere it is thrown.
int run_as_rank(const std::function<void()>& body);

}  // namespace tandem::app
