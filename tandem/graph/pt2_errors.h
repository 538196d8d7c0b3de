#pragma once

#include <string>

namespace tandem {

/// Throws DataError because the file at `path` is damaged. The message is `path`,
/// followed by `what`.
[[noreturn]] void fail_pt2(const std::string& path, const std::string& what);

/// Throws ConfigError because tandem cannot use the file at `path`. The message is
/// `path`, followed by `what`, which ends with an action.
[[noreturn]] void refuse_pt2(const std::string& path, const std::string& what);

}  // namespace tandem
