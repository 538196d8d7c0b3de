#pragma once

#include <string>

namespace tandem {

/// A private directory, under $TMPDIR or /tmp, for the socket of the store at which the
/// ranks of one host meet. The destructor removes it. A launcher that was killed by
/// SIGKILL leaves its directory; the same user's next launcher removes each directory
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
