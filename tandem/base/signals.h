#pragma once

namespace tandem {

/// Turns signals into flags for a training loop. Call it from the main thread.
///
/// SIGTERM, SIGINT and SIGHUP (a closed terminal, except under nohup) request to save
/// and stop. SIGUSR1 requests to save, or to save and stop (stop_on_sigusr1()). The
/// flags are global variables, because a signal handler cannot access an object. On the
/// main thread the handler runs on a separate stack.
void catch_signals();

/// Sets whether SIGUSR1 also requests to stop (default: it does not). Also applies to
/// an earlier SIGUSR1 that was not yet handled.
void stop_on_sigusr1(bool stop);

/// Returns the signal that requested to stop, 0 if none did. Thread-safe.
int stop_signal();

/// Returns whether this process ignores a closed terminal, as under nohup.
bool ignores_hangup();

/// Returns whether SIGUSR1 has requested to save since the last call. Thread-safe.
bool take_save_request();

}  // namespace tandem
