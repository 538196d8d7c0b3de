#include "tandem/comm/backends/mpi_session.h"

#include <mpi.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

void check_mpi(int code) {
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw std::runtime_error(std::string(text, static_cast<size_t>(length)));
  }
}

MpiSession& MpiSession::of_process() {
  static MpiSession session;
  [[maybe_unused]] static const int registered =
      std::at_quick_exit([] { session.end(); });
  if (has_ended()) {
    throw ConfigError(
        "[comm] MPI has ended in this process; create the communicator before "
        "MPI_Finalize");
  }
  return session;
}

bool MpiSession::has_ended() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

MpiSession::~MpiSession() {
  end();
}

void MpiSession::end() {
  if (ours_ && !abandoned_ && !has_ended()) {
    MPI_Finalize();
  }
}

MpiSession::MpiSession() {
  int begun = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&begun);
  if (begun != 0) {
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) {
      throw ConfigError(
          "[comm] the program initialized MPI with thread level " +
          std::to_string(level) + ", expected MPI_THREAD_MULTIPLE (" +
          std::to_string(MPI_THREAD_MULTIPLE) +
          "); replace MPI_Init by MPI_Init_thread");
    }
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    ours_ = true;
  }
  if (level < MPI_THREAD_MULTIPLE) {
    throw std::runtime_error("MPI does not provide MPI_THREAD_MULTIPLE");
  }
}

}  // namespace tandem
