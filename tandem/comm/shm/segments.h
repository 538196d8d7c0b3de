#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tandem/comm/shm/region.h"

namespace tandem {

/// The buffers that ranks let each other map: a reduction then reads and writes them
/// where they lie.
///
/// A rank makes one without asking the others, who map it (by the descriptor in
/// /proc) when an announcement names it first. allocate() and the end of a buffer may
/// come from any thread, all else from the communicator's. What orders the entries that
/// others read is said at ShmSegmentEntry.
class ShmSegments : public std::enable_shared_from_this<ShmSegments> {
 public:
  /// `rank` of `size` in the family's region; groups that split off keep both.
  ShmSegments(std::shared_ptr<ShmRegion> region, int rank, int size);
  ~ShmSegments();

  /// A flat tensor of zeros, 64-byte aligned; undefined where no place in the table, or
  /// no memory, is left.
  at::Tensor allocate(int64_t numel, at::ScalarType dtype);

  /// Where memory lies, as other ranks find it; nullopt when it is in none of this
  /// rank's buffers.
  struct Location {
    uint64_t segment = 0;
    uint64_t offset = 0;
  };
  std::optional<Location> find(const void* memory, size_t bytes);

  /// Another rank's memory as it is mapped here. Throws std::runtime_error when it
  /// cannot be mapped.
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
  // Indexed by rank, then slot. An old buffer stays mapped until a new one that comes
  // to its slot is opened.
  std::vector<std::vector<Foreign>> foreign_;
};

}  // namespace tandem
