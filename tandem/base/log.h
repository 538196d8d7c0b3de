#pragma once

#include <string>

namespace tandem {

/// Sets the rank of the calling thread for its log lines. The default is rank 0 of 1.
///
/// Log lines go to standard error, with one write per line. All functions in this
/// header are thread-safe. The environment variable TANDEM_LOG sets the level: debug,
/// info (the default), warn or error. Only rank 0 prints info lines. Every rank prints
/// warnings, each distinct warning once per process.
void set_thread_rank(int rank, int world_size);

/// Returns the rank of the calling thread, 0 if it was not set.
int thread_rank();

/// Logs details for debugging.
void log_debug(const std::string& message);

/// Logs progress, on rank 0 only.
void log_info(const std::string& message);

/// Logs a warning, once per process for each message.
void log_warning(const std::string& message);

/// Logs an error.
void log_error(const std::string& message);

}  // namespace tandem
