#pragma once

namespace tandem {

/// Turns signals into flags that a training loop looks at: SIGTERM, SIGINT and SIGHUP
/// (a terminal that is closed; not under nohup) ask it to save and stop, SIGUSR1 to
/// save, or also to stop (stop_on_sigusr1()). A signal handler cannot reach an object,
/// so these are the process's. Call it from the main thread: the handler then runs on a
/// stack of its own there.
void catch_signals();

/// Sets whether SIGUSR1 also asks to stop, which is off by default. This applies to a
/// SIGUSR1 that arrived before and was not yet taken, too.
void stop_on_sigusr1(bool stop);

/// The signal that asked to stop, 0 for none. Any thread.
int stop_signal();

/// Whether this process was started to outlive its terminal, as by nohup.
bool ignores_hangup();

/// True if SIGUSR1 has come since the last call. Any thread.
bool take_save_request();

}  // namespace tandem
