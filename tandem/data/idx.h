#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Content of an IDX file of bytes, the format of MNIST
/// (http://yann.lecun.com/exdb/mnist). The file contains two zero bytes, the type 0x08,
/// the number of dimensions, each dimension as a big-endian 32-bit number, and the
/// data.
struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<uint8_t> values;
};

/// Reads an IDX file of unsigned bytes, gzip or plain.
///
/// Throws DataError with the path if the file is missing, is not an IDX file of bytes,
/// or does not have `num_dims` dimensions. Also throws it if the file is shorter or
/// longer than its header declares, is a damaged gzip, or has other bytes after the
/// gzip. Allocated memory grows with the data in the file, not with the size in the
/// header. If it would be more than half of the free memory, throws ConfigError.
IdxArray read_idx(const std::string& path, size_t num_dims);

/// Parses the bytes of a file as read_idx() does. `name` is the name of the file in
/// errors.
IdxArray parse_idx(std::string_view bytes, const std::string& name, size_t num_dims);

/// Writes an IDX file atomically (files.h), compressed if `path` ends in ".gz".
void write_idx(const std::string& path, const IdxArray& array);

/// Returns the folder with IDX files at a path: the path itself, or a folder of
/// torchvision in it, such as raw or MNIST/raw; "" if there is none. File names may
/// have a point in place of the second hyphen, as on Kaggle. Throws DataError if the
/// path has several folders with IDX files.
[[nodiscard]] std::string find_idx_folder(const std::string& path);

/// Loads the four IDX files of a folder, such as MNIST's (gzip or plain). The files of
/// images are idx3 (gray) or idx4 (samples x channels x height x width). Throws
/// DataError if a file is missing or damaged, or if the files do not match.
[[nodiscard]] DatasetSplits load_idx_folder(const std::string& folder);

/// Loads an IDX file of gray images (idx3), gzip or plain, as a data set without
/// labels: `targets` has no bytes. Throws the errors of read_idx().
[[nodiscard]] Dataset load_images(const std::string& path);

}  // namespace tandem
