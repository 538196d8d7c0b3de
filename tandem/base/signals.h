#pragma once

namespace tandem {

/// Installs signal handlers that set flags for a training loop. Call it from the main
/// thread.
///
/// SIGTERM, SIGINT and SIGHUP (a closed terminal, except under nohup) request a save
/// and a stop. SIGUSR1 requests a save, and also a stop after stop_on_sigusr1(true).
/// The flags are global variables, because a signal handler cannot access an object. On
/// the main thread the handler runs on a separate stack.
void catch_signals();

/// Sets whether SIGUSR1 also requests a stop; the default is false. Also applies to a
/// SIGUSR1 that has arrived but was not yet handled.
void stop_on_sigusr1(bool stop);

/// Returns the signal that requested a stop; 0 if there is none. Thread-safe.
int stop_signal();

/// Returns whether this process ignores SIGHUP, as under nohup.
bool ignores_hangup();

/// Returns whether SIGUSR1 has arrived since the last call. Thread-safe.
bool take_save_request();

}  // namespace tandem
