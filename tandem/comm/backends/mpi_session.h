#pragma once

namespace tandem {

/// Throws std::runtime_error with MPI's message unless `code` is MPI_SUCCESS.
void check_mpi(int code);

/// Initializes and finalizes the MPI library, which a process can do only once. If the
/// session initialized MPI, it also finalizes MPI, in exit() or quick_exit(). If the
/// program called MPI_Init, the program must call MPI_Finalize. of_process() is
/// thread-safe.
class MpiSession {
 public:
  /// Returns the session. The first call initializes MPI, unless the program has
  /// already initialized it.
  ///
  /// Throws ConfigError if MPI was finalized, or if the program initialized MPI without
  /// MPI_THREAD_MULTIPLE. Throws std::runtime_error if MPI cannot be initialized or
  /// does not allow calls from all threads.
  static MpiSession& of_process();

  /// Returns whether MPI was finalized.
  static bool has_ended();

  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// Makes the process skip MPI_Finalize at its end, because MPI_Finalize would wait
  /// for ranks that may have failed.
  void abandon() {
    abandoned_ = true;
  }
  bool abandoned() const {
    return abandoned_;
  }

 private:
  MpiSession();
  void end();

  bool ours_ = false;
  bool abandoned_ = false;
};

}  // namespace tandem
