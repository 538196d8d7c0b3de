#pragma once

#include <cstdio>
#include <string>

namespace tandem {

/// Opens /dev/null for those of descriptors 0, 1 and 2 that are closed. Otherwise the
/// next file, socket or shared memory would get the number, and what is printed would
/// be written into it. Standard input is then at its end, and writing stays an error
/// (EBADF).
///
/// Call it first in main(), before anything is opened; spawn(), launch_ranks(),
/// join_run() and train() do it again for programs that did not. Throws Error without
/// /dev/null.
void reserve_standard_streams();

/// Writes to standard output or error at once, without SIGPIPE. A reader who stalls is
/// waited for until this process is told to stop (output.h). Returns 0, or the errno of
/// text that was lost.
int print_now(std::FILE* stream, const std::string& text);

/// From now on a reader that has gone costs the output meant for it, not this process,
/// whatever code prints. Programs started by exec inherit this: use it only before our
/// own.
void ignore_closed_readers();

}  // namespace tandem
