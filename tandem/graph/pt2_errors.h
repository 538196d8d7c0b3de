#pragma once

#include <string>

namespace tandem {

/// Throws DataError: the file at `path` is damaged; `what` follows its name.
[[noreturn]] void fail_pt2(const std::string& path, const std::string& what);

/// Throws ConfigError: tandem cannot use the file at `path`; `what` follows its name
/// and ends with an action.
[[noreturn]] void refuse_pt2(const std::string& path, const std::string& what);

}  // namespace tandem
