#pragma once

#include <string>

namespace tandem {

/// Log lines go to standard error, one write per line, safe from any thread. A thread
/// is told its rank; it never looks it up.
///
/// Levels: TANDEM_LOG=debug|info|warn|error (default info). info is printed by rank 0
/// only, warnings by every rank, each distinct warning once per process.
void set_thread_rank(int rank, int world_size);

/// The rank this thread was told, 0 when it was told none.
int thread_rank();

void log_debug(const std::string& message);
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

}  // namespace tandem
