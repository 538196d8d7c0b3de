#pragma once

#include "tandem/base/error.h"

namespace tandem {

/// Error of a system call on a file, which fail_on_file() (files.h) throws. The content
/// of the file may be intact.
class FileError : public DataError {
 public:
  using DataError::DataError;
};

}  // namespace tandem
