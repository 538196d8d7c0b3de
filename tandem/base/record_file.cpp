#include "tandem/base/record_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

RecordFile::RecordFile(std::string path, int flags)
    : path_(std::move(path)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666)) {
  if (!file_) {
    fail_on_file("write", path_);
  }
}

void RecordFile::append(const std::string& record) {
  const off_t before = lseek(file_.fd(), 0, SEEK_END);
  try {
    write_all(file_.fd(), record.data(), record.size(), path_);
  } catch (const DataError&) {
    // If the disk is full, a part of the record may be written. Readers expect whole
    // records.
    [[maybe_unused]] const int cut = ftruncate(file_.fd(), before);
    throw;
  }
}

bool RecordFile::is_lost() const {
  return !is_still_at(file_.fd(), path_);
}

}  // namespace tandem
