#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// An array of bytes as an IDX file holds it (the format of MNIST:
/// http://yann.lecun.com/exdb/mnist, two zero bytes, the type 0x08, the number
/// of dimensions, each dimension as a big-endian 32-bit number, then the data).
struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<uint8_t> values;
};

/// Reads an IDX file of unsigned bytes, gzip or plain.
///
/// Throws DataError that names the file when it is missing, not IDX, not of bytes, not
/// of `num_dims` dimensions, shorter or longer than its header says, a damaged gzip, or
/// a gzip followed by other bytes. Memory grows with the data found, not with what the
/// header claims; throws ConfigError, before it takes any, when the header claims more
/// than half of what is free.
IdxArray read_idx(const std::string& path, size_t num_dims);

/// The same for a file's bytes; `name` is for the messages.
IdxArray parse_idx(std::string_view bytes, const std::string& name, size_t num_dims);

/// Writes it in one step (files.h), compressed when `path` ends in ".gz".
void write_idx(const std::string& path, const IdxArray& array);

}  // namespace tandem
