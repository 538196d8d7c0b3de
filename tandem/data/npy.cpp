#include "tandem/data/npy.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "tandem/base/files.h"
#include "tandem/base/mapped_file.h"
#include "tandem/data/data_memory.h"
#include "tandem/data/npy_format.h"

namespace tandem {

namespace {

// Returns whether the elements can be used where they are in the file.
bool is_usable_in_place(const Bytes& file, const NpyHeader& header) {
  const auto address = reinterpret_cast<uintptr_t>(file.data() + header.data_offset);
  return header.kind->convert == nullptr && address % size_of(header.kind->type) == 0;
}

}  // namespace

NpyArray parse_npy(const Bytes& file, const std::string& name) {
  size_t offset = 0;
  const ReadBytes read = [&](uint8_t* to, size_t size) {
    const size_t got = std::min(size, file.size() - offset);
    std::copy_n(file.data() + offset, got, to);
    offset += got;
    return got;
  };
  const std::string label = "'" + name + "'";
  NpyHeader header = read_npy_header(read, file.size(), label);
  if (!is_usable_in_place(file, header)) {
    check_data_memory(
        label, header.memory_bytes(),
        "save x.astype('float32') or x.astype('int64'), which need not be in memory");
    return read_npy_elements(header, read, label);
  }
  return {
      header.kind->type, std::move(header.shape),
      part_of(file, header.data_offset, file.size() - header.data_offset), true,
      header.is_bool()};
}

NpyArray read_npy(const std::string& path) {
  const Bytes file = map_file(path);
  NpyArray array = parse_npy(file, path);
  if (array.is_mapped) {
    // Samples are read in random order, for which the kernel's read-ahead reads pages
    // that are evicted before their use. The advice has no effect on results.
    madvise(const_cast<uint8_t*>(file.data()), file.size(), MADV_RANDOM);
  }
  return array;
}

void write_npy(
    const std::string& path, ElementType type, const std::vector<int64_t>& shape,
    const uint8_t* bytes) {
  const std::string header = npy_header(type, shape);
  size_t size = size_of(type);
  for (const int64_t dim : shape) {
    size *= static_cast<size_t>(dim);
  }
  replace_file(path, [&](int fd) {
    write_all(fd, header.data(), header.size(), path);
    write_all(fd, bytes, size, path);
  });
}

}  // namespace tandem
