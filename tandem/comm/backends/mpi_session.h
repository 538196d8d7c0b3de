#pragma once

namespace tandem {

/// Throws std::runtime_error with MPI's own words unless `code` is MPI_SUCCESS.
void check_mpi(int code);

/// The life of the MPI library, which can begin and end once in a process. A program
/// that has begun it also ends it; else it ends with the process, by exit() or
/// quick_exit(). Any thread may call of_process().
class MpiSession {
 public:
  /// Begins MPI at the first call, unless the program did.
  ///
  /// Throws ConfigError when MPI has ended, std::runtime_error when it does not start
  /// or does not allow calls from all threads.
  static MpiSession& of_process();

  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// The others may be anywhere: to end in order would be to wait for them.
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
