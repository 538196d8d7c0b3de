#pragma once

#include <string>

namespace tandem {

/// A private directory, under $TMPDIR or /tmp, that contains the Unix socket of the
/// rendezvous store. The destructor removes the directory. If a launcher is killed by
/// SIGKILL, its directory remains. The same user's next launcher removes each directory
/// whose lock no launcher holds.
class MeetingDirectory {
 public:
  /// Makes the directory, and removes the directories of killed launchers. Throws
  /// DataError if the directory cannot be made.
  MeetingDirectory();
  ~MeetingDirectory();
  MeetingDirectory(const MeetingDirectory&) = delete;
  MeetingDirectory& operator=(const MeetingDirectory&) = delete;

  /// Returns the store's address: "unix:DIRECTORY/launcher-store".
  std::string store_address() const;

 private:
  std::string path_;
  int lock_fd_ = -1;
};

}  // namespace tandem
