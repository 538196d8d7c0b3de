#include "tandem/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/lost_pages.h"

namespace tandem {

namespace {

// Returns the size of a regular file.
size_t size_of_file(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    fail_on_file("read", path);
  }
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    fail_on_file("read", path);
  }
  if (!S_ISREG(status.st_mode)) {
    throw DataError(
        "[files] '" + path +
        "' is a pipe, socket or device, expected a file; copy its data to a file");
  }
  return static_cast<size_t>(status.st_size);
}

struct NamedBytes {
  NamedBytes(Bytes mapped, const std::string& path)
      : bytes(std::move(mapped)), name(bytes.data(), bytes.size(), path) {}

  const Bytes bytes;
  const MappedName name;
};

}  // namespace

Bytes map_descriptor(int fd, size_t size) {
  void* at =
      size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) {
    return {};
  }
  const std::shared_ptr<const uint8_t> data(
      static_cast<const uint8_t*>(at),
      [size](const uint8_t* first) { munmap(const_cast<uint8_t*>(first), size); });
  return {data, size};
}

Bytes map_file(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    fail_on_file("read", path);
  }
  const size_t size = size_of_file(file.fd(), path);
  const auto named =
      std::make_shared<const NamedBytes>(map_descriptor(file.fd(), size), path);
  if (named->bytes.size() != size) {
    fail_on_file("map", path);
  }
  return {std::shared_ptr<const uint8_t>(named, named->bytes.data()), size};
}

void read_ahead(const uint8_t* data, size_t size) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t offset = reinterpret_cast<uintptr_t>(data) % page;
  madvise(const_cast<uint8_t*>(data - offset), size + offset, MADV_WILLNEED);
}

int64_t num_major_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

Bytes part_of(const Bytes& all, size_t offset, size_t size) {
  const auto owner = std::make_shared<const Bytes>(all);
  return {std::shared_ptr<const uint8_t>(owner, owner->data() + offset), size};
}

}  // namespace tandem
