#pragma once

namespace tandem {

/// Throws std::runtime_error with MPI's message unless `code` is MPI_SUCCESS.
void check_mpi(int code);

/// Lifetime of the MPI library, which can start and end once in a process. A program
/// that started it also ends it; otherwise it ends with the process, by exit() or
/// quick_exit(). of_process() is thread-safe.
class MpiSession {
 public:
  /// Returns the session. Starts MPI at the first call, unless the program did.
  ///
  /// Throws ConfigError if MPI has ended, std::runtime_error if it does not start or
  /// does not allow calls from all threads.
  static MpiSession& of_process();

  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// Skips MPI_Finalize, which would wait for ranks that may have failed.
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
