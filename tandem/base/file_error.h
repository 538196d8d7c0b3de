#pragma once

#include <string>

namespace tandem {

/// Throws DataError: "cannot write 'path'", errno's reason, and what to do about it.
/// `what`: "write", "read", ...
[[noreturn]] void fail_on_file(const std::string& what, const std::string& path);

}  // namespace tandem
