#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/bytes.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Content of a NumPy file: an array in C order, in which the last dimension is
/// contiguous.
struct NpyArray {
  ElementType type = ElementType::uint8;
  // Sizes of the dimensions, 1 or more each; empty for a single number.
  std::vector<int64_t> shape;
  // Elements, aligned for their type.
  Bytes bytes;
  // True if `bytes` shares the memory of the file, such as its mapping; false for a
  // copy.
  bool is_mapped = false;
  // True if the file has bool elements; `bytes` has 0 or 1 of the type uint8 for each.
  bool is_bool = false;
};

/// Reads a .npy file of numpy.save(), format version 1.0 to 3.0
/// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
///
/// Arrays of uint8, bool (as uint8), float32 and int64 are mapped into memory for
/// random access, so they can be larger than memory (mapped_file.h). Other arrays are
/// converted in memory. float16 and float64 become float32 as with NumPy's astype;
/// values out of range become infinite. int8, int16, int32, uint16 and uint32 become
/// int64. If the elements in a file are not aligned for their type, which NumPy does
/// not write, they are copied into memory.
///
/// Throws DataError with the path if the file is missing, is not a .npy file, is
/// damaged, or is shorter or longer than its header declares. Also throws it if the
/// array has no elements, big-endian numbers, elements of another type, or several
/// dimensions in Fortran order. If a copy would need more than half of the free memory,
/// throws ConfigError before allocating it.
NpyArray read_npy(const std::string& path);

/// Parses the content of a .npy file as read_npy() does. `name` is the name of the file
/// in errors. The array can share the memory of `file`.
NpyArray parse_npy(const Bytes& file, const std::string& name);

/// Reads arrays of a .npz file of numpy.savez() or numpy.savez_compressed() into
/// memory. The keys are the names of the arrays, without ".npy". Reads only arrays
/// whose names are in `wanted`, and ignores other members; if `wanted` is empty, reads
/// all.
///
/// Throws the errors of read_npy(). Also throws DataError if the file is not a zip
/// archive, or is damaged, encrypted or empty. The same applies if it contains other
/// files or two arrays of the same name. Memory for an array is allocated after its
/// size has been verified. If arrays are declared to be larger than 4 times the file,
/// they are therefore unpacked twice.
std::map<std::string, NpyArray> read_npz(
    const std::string& path, const std::set<std::string>& wanted = {});

/// Parses the content of a .npz file as read_npz() does. `name` is the name of the file
/// in errors.
std::map<std::string, NpyArray> parse_npz(
    const Bytes& file, const std::string& name,
    const std::set<std::string>& wanted = {});

/// Writes a .npy file of version 1.0 atomically (files.h). `bytes` has the elements in
/// C order.
void write_npy(
    const std::string& path, ElementType type, const std::vector<int64_t>& shape,
    const uint8_t* bytes);

}  // namespace tandem
