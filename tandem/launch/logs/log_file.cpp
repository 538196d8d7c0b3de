#include "tandem/launch/logs/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"

namespace tandem {

LogFile::LogFile(std::string path)
    : path_(std::move(path)),
      fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) {
    fail_on_file("write", path_);
  }
}

LogFile::~LogFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

void LogFile::add(const char* data, size_t size) {
  if (fd_ < 0) {
    return;
  }
  try {
    write_all(fd_, data, size, path_);
  } catch (const DataError& error) {
    log_warning(
        "[launch] the rest of a log file is missing: " + std::string(error.what()));
    close(std::exchange(fd_, -1));
  }
}

}  // namespace tandem
