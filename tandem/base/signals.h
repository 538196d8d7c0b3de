#pragma once

namespace tandem {

/// Turns signals into flags for a training loop. Call it from the main thread.
///
/// SIGTERM, SIGINT and SIGHUP (a closed terminal, except under nohup) request to save
/// and stop. SIGUSR1 requests to save, or also to stop (stop_on_sigusr1()). The flags
/// belong to the process, because a signal handler cannot reach an object. On the main
/// thread the handler runs on a separate stack.
void catch_signals();

/// Sets whether SIGUSR1 also requests to stop, which is off by default. It also applies
/// to a SIGUSR1 that arrived before and was not yet handled.
void stop_on_sigusr1(bool stop);

/// Returns the signal that requested to stop, 0 if none did. Thread-safe.
int stop_signal();

/// Returns whether this process ignores a closed terminal, as under nohup.
bool ignores_hangup();

/// Returns whether SIGUSR1 has arrived since the last call. Thread-safe.
bool take_save_request();

}  // namespace tandem
