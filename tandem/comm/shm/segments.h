#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tandem/comm/shm/region.h"

namespace tandem {

/// Buffers that ranks map from each other, so that a reduction reads and writes them in
/// place.
///
/// A rank creates a buffer without involving the other ranks. The other ranks map the
/// buffer through its descriptor in /proc when they first need it.
/// Allocating and freeing a buffer are thread-safe; only the communicator's thread may
/// call the other functions. ShmSegmentEntry describes the memory order of the entries
/// that other ranks read.
class ShmSegments : public std::enable_shared_from_this<ShmSegments> {
 public:
  /// `rank` and `size` are this rank's number and the number of ranks in the family
  /// (family.h). All groups of the family share the object.
  ShmSegments(std::shared_ptr<ShmRegion> region, int rank, int size);
  ~ShmSegments();

  /// Returns a flat tensor of zeros, aligned to 64 bytes. The tensor is undefined if no
  /// ShmSegmentEntry or no memory is left.
  at::Tensor allocate(int64_t numel, at::ScalarType dtype);

  /// Location in a buffer, which a rank can send to other ranks. `segment` contains the
  /// index and the version of the buffer's ShmSegmentEntry. `offset` is in bytes.
  /// find() returns nullopt if the memory is not in a buffer of this rank.
  struct Location {
    uint64_t segment = 0;
    uint64_t offset = 0;
  };
  std::optional<Location> find(const void* memory, size_t bytes);

  /// Returns the address at which this process maps another rank's memory. Throws
  /// std::runtime_error if the memory cannot be mapped.
  char* open(int rank, const Location& place);

 private:
  struct Own {
    char* memory = nullptr;
    size_t bytes = 0;
    uint64_t version = 0;
  };
  struct Foreign {
    uint64_t version = 0;
    char* memory = nullptr;
    size_t bytes = 0;
  };

  void release(size_t slot);
  void map(int rank, size_t slot, Foreign& mapped) const;

  std::shared_ptr<ShmRegion> region_;
  int rank_;
  std::mutex mutex_;
  std::vector<Own> own_;
  // Mapped buffers of other ranks, indexed by rank, then by slot: the index of the
  // buffer's ShmSegmentEntry. A freed buffer stays mapped until open() maps a new
  // buffer with this slot.
  std::vector<std::vector<Foreign>> foreign_;
};

}  // namespace tandem
