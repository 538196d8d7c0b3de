#pragma once

#include <string>

namespace tandem {

/// The private directory in which the ranks of one host meet, under $TMPDIR or /tmp.
/// Removed with the object. A launcher killed by SIGKILL cannot do that: the next one
/// of the same user does, for every directory whose lock no living launcher holds.
class MeetingDirectory {
 public:
  /// Removes what killed launchers left, then makes a directory. Throws DataError.
  MeetingDirectory();
  ~MeetingDirectory();
  MeetingDirectory(const MeetingDirectory&) = delete;
  MeetingDirectory& operator=(const MeetingDirectory&) = delete;

  /// Where the store listens: "unix:DIRECTORY/launcher-store".
  std::string store_address() const;

 private:
  std::string path_;
  int lock_fd_ = -1;
};

}  // namespace tandem
