#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/record_file.h"

namespace tandem {

/// Returns the CRC-32C (Castagnoli) of `size` bytes.
uint32_t crc32c(const void* data, size_t size);

/// Names and values of numbers. TensorBoard draws a chart for each name and groups
/// charts by the part of the name before "/".
using Scalars = std::vector<std::pair<std::string, double>>;

/// Writes an event file, which TensorBoard shows. The file is a sequence of TFRecords,
/// and each record is a message `Event` of TensorBoard's event.proto. Not thread-safe.
class EventFile {
 public:
  /// Creates a file in `directory`, and the directory if it is missing. TensorBoard
  /// reads the event files of a directory in the order of their names, so the new file
  /// gets the greatest name. From `first_step` on, TensorBoard shows no steps of the
  /// other files. Throws DataError on failure.
  EventFile(const std::string& directory, int64_t first_step);

  /// Appends the values of a step, rounded to float32. Throws DataError if the file
  /// cannot be written.
  void add(int64_t step, const Scalars& scalars);

 private:
  RecordFile file_;
};

}  // namespace tandem
