// Replaces mmap and munmap (--wrap in tests/CMakeLists.txt): a file that is already
// mapped is not mapped again. So thread ranks have one mapping of the shared memory,
// and the thread sanitizer, which uses addresses, sees all accesses to it.

#include <sys/mman.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

namespace {

struct Mapping {
  dev_t device;
  ino_t inode;
  size_t bytes;
  int num_users;
};

struct Mappings {
  std::mutex mutex;
  std::map<void*, Mapping> by_address;
};

Mappings& mappings() {
  static Mappings all;
  return all;
}

}  // namespace

extern "C" {
void* real_mmap(void*, size_t, int, int, int, off_t) __asm__("__real_mmap");
int real_munmap(void*, size_t) __asm__("__real_munmap");
void* mmap_once(void*, size_t, int, int, int, off_t) __asm__("__wrap_mmap");
int munmap_last(void*, size_t) __asm__("__wrap_munmap");
}

void* mmap_once(
    void* where, size_t bytes, int access, int flags, int fd, off_t offset) {
  struct stat file {};
  if ((flags & MAP_SHARED) == 0 || offset != 0 || fstat(fd, &file) != 0) {
    return real_mmap(where, bytes, access, flags, fd, offset);
  }
  const std::lock_guard<std::mutex> lock(mappings().mutex);
  for (auto& [address, mapping] : mappings().by_address) {
    if (mapping.device == file.st_dev && mapping.inode == file.st_ino &&
        mapping.bytes == bytes) {
      ++mapping.num_users;
      return address;
    }
  }
  void* address = real_mmap(where, bytes, access, flags, fd, offset);
  if (address != MAP_FAILED) {
    mappings().by_address[address] = {file.st_dev, file.st_ino, bytes, 1};
  }
  return address;
}

int munmap_last(void* address, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mappings().mutex);
  const auto found = mappings().by_address.find(address);
  if (found != mappings().by_address.end()) {
    if (--found->second.num_users > 0) {
      return 0;
    }
    mappings().by_address.erase(found);
  }
  return real_munmap(address, bytes);
}
