#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace tandem {

/// memcpy() that accepts 0 bytes with null pointers, as of an empty tensor.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

// The ranks of one host share an anonymous file (memfd) that each of them maps. It
// counts against no file system (a container's /dev/shm may be limited to 64 MiB), and
// the kernel removes it with its last user, even after crashes. Other ranks open it as
// /proc/PID/fd/FD, which needs no common parent and no socket.
//
//      0  Header (region.cpp)
//   4096  ShmRankBlock of rank 0: 1160 KiB
//           +0       state, pid
//           +64      operations_done, chunks_done
//           +128     bell, sleeping
//           +192     cpu, segments[128]
//           +3328    announcements[16], 8256 bytes each
//           +135424  chunk_flags[8], 64 bytes each
//           +139264  chunks[8], 128 KiB each
//         ShmRankBlock of rank 1, and so on
//         ShmRing [from][to], one for each pair of ranks: 256 KiB + 128 bytes
//
// Only its own rank writes a block, except `bell` and `sleeping`; no other cache line
// of a block has two writers. A subgroup (split()) has a separate region, for
// announcements, chunks, rings, their counters, and `state`. For everything else, and
// to detect dead ranks, it uses the region of its family (family.h).
//
// Memory order. Each counter has one writer, starts at 0, only grows, and is stored
// with release. A rank that loads it with acquire (or seq_cst, which is stronger) and
// finds n or more sees everything that the writer did before it stored n. The counters
// form pairs, so that a place is written only when it is free and read only when it is
// full:
//
//   marks a place as full, by its writer       marks it as free, by each reader
//   ShmAnnouncement::sequence                  operations_done
//   Flag::sequence of a chunk                  chunks_done
//   ShmRing::written                           ShmRing::read
//
// The comments on the other words describe their order.

/// Announcement of an operation by one rank, with its data if they are small: then the
/// operation takes one trip between cores. The first 24 bytes of the payload share a
/// cache line with the words before it.
struct alignas(64) ShmAnnouncement {
  static constexpr size_t kPayloadBytes = 8192 + 24;

  // Number of the operation + 1, written last. It publishes the rest of this struct
  // and, of a tensor in shared memory, its values and its entry in `segments`.
  std::atomic<uint64_t> sequence;
  // Equal on all ranks if their calls are equal.
  uint64_t signature;
  uint64_t numel;
  // Place of the tensor (segments.h); `segment` is 0 if other ranks cannot access it.
  uint64_t segment;
  uint64_t offset;
  char payload[kPayloadBytes];
};

/// Entry of a buffer that other ranks may map. The buffer's rank writes the entry only
/// while it has no buffer. Other ranks read it only for an operation whose
/// announcement, which they have acquired, names the buffer. The operation keeps the
/// buffer until it ends, which is after all ranks have read the entry.
struct ShmSegmentEntry {
  // Grows by 1 with every buffer in this entry. Announcements contain it, so its own
  // release and acquire publish nothing beyond what they have published.
  std::atomic<uint64_t> version;
  int64_t fd;
  int64_t bytes;
};

/// The part of the region that belongs to one rank.
struct ShmRankBlock {
  static constexpr uint64_t kAnnouncements = 16;
  static constexpr uint64_t kChunks = 8;
  // Two chunks each of two ranks are 512 KiB, half of an L2 cache of 1 MiB.
  static constexpr int64_t kChunkBytes = int64_t{128} << 10;
  static constexpr size_t kSegments = 128;

  enum State : uint32_t { absent, attached, left };

  // Changes from absent to attached to left, never back; its rank stores it, others
  // load it. `left` is stored with release and loaded with acquire (both are seq_cst):
  // a rank that finds it sees everything that was written before, and reads that before
  // it gives up. `left` is stored before the lock ends, and died() checks the lock
  // first, so an orderly end does not look like a death.
  alignas(64) std::atomic<uint32_t> state;
  int64_t pid;
  // This rank no longer reads the announcements, by any rank, of operations below this
  // number. Each rank announces operation n only when all ranks' numbers are above n -
  // kAnnouncements: with the acquire there, the last reads of a slot happen before it
  // is overwritten.
  alignas(64) std::atomic<uint64_t> operations_done;
  // The same for chunks, with kChunks.
  std::atomic<uint64_t> chunks_done;
  // A futex. A rank that rings adds 1 and then wakes the sleeper, which had read the
  // bell before it set `sleeping`: after a ring in between, the futex returns
  // immediately.
  alignas(64) std::atomic<uint32_t> bell;
  // 1 from before this rank sleeps until it wakes or is rung. It stores 1 and 0. A rank
  // that rings stores 0 by an exchange, so that only one of several ranks rings. The
  // sleeper stores 1 and then checks for new data; another rank writes data and then
  // checks this word. Each has a seq_cst fence between its two steps, so at least one
  // sees the other's write. With release and acquire alone both could check too early,
  // and no rank would ring.
  std::atomic<uint32_t> sleeping;
  // Core + 1 of this rank when it last wrote or waited. All accesses are relaxed: it is
  // a hint, and publishes nothing.
  alignas(64) std::atomic<int32_t> cpu;
  ShmSegmentEntry segments[kSegments];
  ShmAnnouncement announcements[kAnnouncements];
  // Number of the chunk + 1, written after the chunk. With tensors in shared memory it
  // publishes the values that the rank wrote to all of them.
  struct alignas(64) Flag {
    std::atomic<uint64_t> sequence;
  };
  Flag chunk_flags[kChunks];
  alignas(4096) char chunks[kChunks][kChunkBytes];
};

/// Bytes in transit from one rank to another. Byte i of all bytes ever sent is at
/// data[i % kBytes].
struct ShmRing {
  static constexpr size_t kBytes = size_t{256} << 10;

  // Counts of bytes since the start: read <= written <= read + kBytes. The sender
  // stores `written`, the receiver `read`; each loads its own relaxed.
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) char data[kBytes];
};

/// One rank's mapping of the region. Pages use memory only after they were touched.
class ShmRegion {
 public:
  /// Creates a region. Other ranks attach to its address().
  static std::shared_ptr<ShmRegion> create(int size);

  /// Maps another rank's region. Throws ConfigError with the reason, such as another
  /// host or another user.
  static std::shared_ptr<ShmRegion> attach(const std::string& address, int size);

  ~ShmRegion();
  ShmRegion(const ShmRegion&) = delete;
  ShmRegion& operator=(const ShmRegion&) = delete;

  /// Returns a line of text for attach() of other ranks, valid while this object
  /// exists.
  std::string address() const;

  /// Marks this rank as present, and lets other ranks detect its end. A rank that ends
  /// in order calls leave() first.
  void enter(int rank);
  void leave();

  /// Returns whether a rank that entered ended without leave(): then the kernel has
  /// released its lock. This is known immediately, even of a process that its parent
  /// has not yet reaped. Call it only after all ranks have entered.
  bool died(int rank) const;

  /// Returns the dead rank that any rank noticed first: others may have ended because
  /// of it. `found`: a dead rank that this rank has noticed. The word changes once,
  /// from 0, by compare-exchange, and it is the only data read, so any memory order
  /// would be correct.
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
