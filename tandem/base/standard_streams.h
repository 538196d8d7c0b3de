#pragma once

#include <cstdio>
#include <string>

namespace tandem {

/// Opens /dev/null for those of descriptors 0, 1 and 2 that are closed. Otherwise the
/// next file, socket or shared memory gets the number, and what is printed is written
/// into it. Standard input is then at its end, and writing stays an error (EBADF).
///
/// First in main(), before anything is opened; spawn(), launch(), join_run() and
/// train() do it again for programs that did not. Throws Error without /dev/null.
void hold_standard_streams();

/// Writes to standard output or error at once, without SIGPIPE. Returns 0, or the errno
/// of text that was lost.
int print_now(std::FILE* stream, const std::string& text);

/// From now on a reader that has gone costs its output and not this process, whoever
/// prints. Programs that this one starts by exec inherit it: for ours only.
void outlive_readers();

}  // namespace tandem
