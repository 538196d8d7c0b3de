#include "tandem/comm/shm/segments.h"

#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace tandem {

namespace {

// Number of low bits of Location::segment that contain the slot; the version is above
// them. Versions begin at 1, so no segment is 0.
constexpr int kSlotBits = 16;

size_t slot_of(uint64_t segment) {
  return segment & ((uint64_t{1} << kSlotBits) - 1);
}

// Maps a file. Returns null if the file cannot be mapped.
char* map_file(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  // Large pages cause fewer TLB misses, if the system supports them for shared memory.
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<char*>(memory);
}

}  // namespace

ShmSegments::ShmSegments(std::shared_ptr<ShmRegion> region, int rank, int size)
    : region_(std::move(region)),
      rank_(rank),
      own_(ShmRankBlock::kSegments),
      foreign_(
          static_cast<size_t>(size), std::vector<Foreign>(ShmRankBlock::kSegments)) {}

ShmSegments::~ShmSegments() {
  for (const auto& rank : foreign_) {
    for (const auto& mapped : rank) {
      if (mapped.memory != nullptr) {
        munmap(mapped.memory, mapped.bytes);
      }
    }
  }
}

at::Tensor ShmSegments::allocate(int64_t numel, at::ScalarType dtype) {
  const auto bytes =
      std::max<size_t>(1, static_cast<size_t>(numel) * c10::elementSize(dtype));
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto free = std::find_if(
      own_.begin(), own_.end(), [](const Own& own) { return own.memory == nullptr; });
  if (free == own_.end()) {
    return {};
  }
  Descriptor file(memfd_create("tandem-buffer", MFD_CLOEXEC));
  if (!file || ftruncate(file.fd(), static_cast<off_t>(bytes)) != 0) {
    return {};
  }
  char* memory = map_file(file.fd(), bytes);
  if (memory == nullptr) {
    return {};
  }
  const auto slot = static_cast<size_t>(free - own_.begin());
  *free = {memory, bytes, free->version + 1};
  auto& entry = region_->block(rank_).segments[slot];
  entry.fd = file.release();
  entry.bytes = static_cast<int64_t>(bytes);
  entry.version.store(free->version, std::memory_order_release);
  return at::from_blob(
      memory, {numel},
      [self = shared_from_this(), slot](void*) { self->release(slot); },
      at::TensorOptions().dtype(dtype));
}

void ShmSegments::release(size_t slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& entry = region_->block(rank_).segments[slot];
  close(static_cast<int>(entry.fd));
  munmap(own_[slot].memory, own_[slot].bytes);
  own_[slot].memory = nullptr;
}

std::optional<ShmSegments::Location> ShmSegments::find(
    const void* memory, size_t bytes) {
  const char* begin = static_cast<const char*>(memory);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t slot = 0; slot < own_.size(); ++slot) {
    const auto& own = own_[slot];
    if (own.memory != nullptr && begin >= own.memory &&
        begin + bytes <= own.memory + own.bytes) {
      return Location{
          own.version << kSlotBits | slot, static_cast<uint64_t>(begin - own.memory)};
    }
  }
  return std::nullopt;
}

char* ShmSegments::open(int rank, const Location& place) {
  const size_t slot = slot_of(place.segment);
  auto& mapped = foreign_[static_cast<size_t>(rank)][slot];
  if (mapped.version != place.segment >> kSlotBits) {
    map(rank, slot, mapped);
  }
  return mapped.memory + place.offset;
}

void ShmSegments::map(int rank, size_t slot, Foreign& mapped) const {
  if (mapped.memory != nullptr) {
    munmap(mapped.memory, mapped.bytes);
    mapped = {};
  }
  const auto& block = region_->block(rank);
  const auto& entry = block.segments[slot];
  const auto path =
      "/proc/" + std::to_string(block.pid) + "/fd/" + std::to_string(entry.fd);
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const auto bytes = static_cast<size_t>(entry.bytes);
  char* memory = file ? map_file(file.fd(), bytes) : nullptr;
  if (memory == nullptr) {
    throw std::runtime_error(
        "cannot map memory of rank " + std::to_string(rank) + " at " + path + ": " +
        std::strerror(errno));
  }
  mapped = {entry.version.load(std::memory_order_acquire), memory, bytes};
}

}  // namespace tandem
