#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace tandem {

/// memcpy, also of nothing: of an empty tensor, whose pointer is null.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

// What the ranks of one host share: one anonymous mapping (memfd), with a block per
// rank that only this rank writes but for its bell, and a ring per pair of ranks.
//
// A memfd counts against no file system (a container's /dev/shm may hold 64 MiB) and
// is gone with its last user, however that ends. The others open it as
// /proc/PID/fd/FD, which needs no parent in common and no socket.

/// An operation as one rank announces it, with what it brings if that is small: then
/// the operation takes one trip between cores.
struct alignas(64) ShmAnnouncement {
  static constexpr size_t kPayloadBytes = 8192 + 24;

  // Number of the operation + 1, written last.
  std::atomic<uint64_t> sequence;
  // Equal on all ranks when they call the same.
  uint64_t signature;
  uint64_t numel;
  // Where the tensor lies, if others can see it there (shm_segments.h).
  uint64_t segment;
  uint64_t offset;
  char payload[kPayloadBytes];
};

/// A buffer that a rank lets others map.
struct ShmSegmentEntry {
  std::atomic<uint64_t> version;
  int64_t fd;
  int64_t bytes;
};

struct ShmRankBlock {
  static constexpr uint64_t kAnnouncements = 16;
  static constexpr uint64_t kChunks = 8;
  // Two of a rank's, and two of another, fit into an L2 cache of 1 MiB.
  static constexpr size_t kChunkBytes = size_t{128} << 10;
  static constexpr size_t kSegments = 128;

  enum State : uint32_t { absent, attached, left };

  alignas(64) std::atomic<uint32_t> state;
  int64_t pid;
  // What this rank no longer reads, of all ranks' announcements and chunks.
  alignas(64) std::atomic<uint64_t> operations_done;
  std::atomic<uint64_t> chunks_done;
  // A futex: others ring it when this rank sleeps.
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleeping;
  // Its core + 1, when it last wrote or waited.
  alignas(64) std::atomic<int32_t> cpu;
  ShmSegmentEntry segments[kSegments];
  ShmAnnouncement announcements[kAnnouncements];
  // Number of the chunk + 1.
  struct alignas(64) Flag {
    std::atomic<uint64_t> sequence;
  };
  Flag chunk_flags[kChunks];
  alignas(4096) char chunks[kChunks][kChunkBytes];
};

/// Bytes on their way from one rank to another.
struct ShmRing {
  static constexpr size_t kBytes = size_t{256} << 10;

  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) char data[kBytes];
};

/// One rank's mapping of the region. Pages take memory when they are used first.
class ShmRegion {
 public:
  /// A new region, and what others need to attach (see address()).
  static std::shared_ptr<ShmRegion> create(int size);

  /// Throws ConfigError that says why not: another host, another user.
  static std::shared_ptr<ShmRegion> attach(const std::string& address, int size);

  ~ShmRegion();
  ShmRegion(const ShmRegion&) = delete;
  ShmRegion& operator=(const ShmRegion&) = delete;

  /// One word for attach() of other ranks; valid while this object lives.
  std::string address() const;

  /// Says that this rank is there, and lets others see when it is not any more. A
  /// rank in an orderly end calls leave() before.
  void enter(int rank);
  void leave();

  /// Whether a rank that entered ended without leave(): the kernel has taken back its
  /// lock. Known at once, also of a process that its parent has not yet reaped.
  bool died(int rank) const;

  /// Of the ranks that died the one that any rank noticed first: others may have ended
  /// because of it. `found`: one that this rank has noticed.
  int first_lost(int found) const;

  ShmRankBlock& block(int rank) const;
  ShmRing& ring(int from, int to) const;

 private:
  ShmRegion(int fd, int size, uint64_t nonce);

  int fd_;
  int size_;
  uint64_t nonce_;
  char* memory_ = nullptr;
  size_t bytes_ = 0;
  int rank_ = -1;
};

}  // namespace tandem
