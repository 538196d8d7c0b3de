#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace tandem {

/// memcpy that may also copy nothing: an empty tensor's pointer is null.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

// What the ranks of one host share: an anonymous file (memfd) that each of them maps.
// It counts against no file system (a container's /dev/shm may hold 64 MiB) and is gone
// with its last user, however that ends. The others open it as /proc/PID/fd/FD, which
// needs no parent in common and no socket.
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
// Only its rank writes a block, but for `bell` and `sleeping`; no other cache line of
// it has two writers. A group that was split off has a region of its own, for
// announcements, chunks, rings, their counters, and `state`. For all else, and to see
// who died, it uses the region of its family (family.h).
//
// Order. Each counter has one writer, starts at 0, only grows, and is stored with
// release. A rank that loads it with acquire (or seq_cst, which is more) and finds n or
// more sees all that the writer did before it stored n. The counters are pairs, so that
// a place is written only when it is free and read only when it is full:
//
//   says that a place is full, by its writer   says that it is free, by each reader
//   ShmAnnouncement::sequence                  operations_done
//   Flag::sequence of a chunk                  chunks_done
//   ShmRing::written                           ShmRing::read
//
// The words that are not such counters say below what they rely on.

/// An operation as one rank announces it, with what it brings if that is small: then
/// the operation takes one trip between cores. The first 24 bytes of the payload share
/// a cache line with the words before it.
struct alignas(64) ShmAnnouncement {
  static constexpr size_t kPayloadBytes = 8192 + 24;

  // The number of the operation + 1, written last. It publishes the rest of this struct
  // and, of a tensor in shared memory, its values and its entry in `segments`.
  std::atomic<uint64_t> sequence;
  // Equal on all ranks when they call the same.
  uint64_t signature;
  uint64_t numel;
  // Where the tensor lies (segments.h); `segment` is 0 if others cannot see it there.
  uint64_t segment;
  uint64_t offset;
  char payload[kPayloadBytes];
};

/// A buffer that a rank lets others map. Its rank writes the entry only while no buffer
/// is there. Others read it only for an operation whose announcement, which they have
/// acquired, names the buffer. The operation keeps the buffer until it ends, which is
/// after all have read the entry.
struct ShmSegmentEntry {
  // Grows by 1 with every buffer that comes here. Announcements carry it, so its own
  // release and acquire publish nothing that they have not published.
  std::atomic<uint64_t> version;
  int64_t fd;
  int64_t bytes;
};

struct ShmRankBlock {
  static constexpr uint64_t kAnnouncements = 16;
  static constexpr uint64_t kChunks = 8;
  // Two chunks of a rank and two of another are 512 KiB, half of an L2 cache of 1 MiB.
  static constexpr int64_t kChunkBytes = int64_t{128} << 10;
  static constexpr size_t kSegments = 128;

  enum State : uint32_t { absent, attached, left };

  // Goes from absent to attached to left, never back; its rank stores it, others load
  // it. `left` is stored with release and loaded with acquire (both are seq_cst): a
  // rank that finds it sees all that was written before, and takes that before it gives
  // up. It is stored before the lock ends, and died() looks at the lock first, so an
  // orderly end is not taken for a death.
  alignas(64) std::atomic<uint32_t> state;
  int64_t pid;
  // This rank has done with all ranks' announcements of operations below this number.
  // Each rank announces operation n only when all ranks' are above n - kAnnouncements:
  // with the acquire there, the last reads of a slot lie before it is overwritten.
  alignas(64) std::atomic<uint64_t> operations_done;
  // The same for chunks, with kChunks.
  std::atomic<uint64_t> chunks_done;
  // A futex. A rank that rings adds 1 and then wakes the sleeper, which had read the
  // bell before it set `sleeping`: a ring in between makes the futex return at once.
  alignas(64) std::atomic<uint32_t> bell;
  // 1 from before this rank sleeps until it wakes or is rung. It stores 1 and 0; a rank
  // that rings stores 0 by an exchange, so that one of several rings. The sleeper
  // stores 1 and then looks for news; the other writes news and then looks here. Each
  // has a seq_cst fence between its two steps, so at least one sees what the other
  // wrote. Release and acquire alone would let both look too early, and nobody ring.
  std::atomic<uint32_t> sleeping;
  // Its core + 1, when it last wrote or waited. All use of it is relaxed: it is a hint,
  // and publishes nothing.
  alignas(64) std::atomic<int32_t> cpu;
  ShmSegmentEntry segments[kSegments];
  ShmAnnouncement announcements[kAnnouncements];
  // The number of the chunk + 1, written after the chunk. With tensors in shared memory
  // it publishes what the rank wrote to all of them.
  struct alignas(64) Flag {
    std::atomic<uint64_t> sequence;
  };
  Flag chunk_flags[kChunks];
  alignas(4096) char chunks[kChunks][kChunkBytes];
};

/// Bytes on their way from one rank to another. Byte i of all that were ever sent is at
/// data[i % kBytes].
struct ShmRing {
  static constexpr size_t kBytes = size_t{256} << 10;

  // Counts of bytes since the start: read <= written <= read + kBytes. The sender
  // stores `written`, the receiver `read`; each loads its own relaxed.
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) char data[kBytes];
};

/// One rank's mapping of the region. Pages take memory only once they are used.
class ShmRegion {
 public:
  /// Makes a new region; address() is what others need to attach.
  static std::shared_ptr<ShmRegion> create(int size);

  /// Throws ConfigError, with the reason: another host, or another user.
  static std::shared_ptr<ShmRegion> attach(const std::string& address, int size);

  ~ShmRegion();
  ShmRegion(const ShmRegion&) = delete;
  ShmRegion& operator=(const ShmRegion&) = delete;

  /// A line of text for attach() of other ranks; valid while this object lives.
  std::string address() const;

  /// Says that this rank is there, and lets others see when it no longer is. A rank
  /// that ends in order calls leave() first.
  void enter(int rank);
  void leave();

  /// Whether a rank that entered ended without leave(): the kernel has taken back its
  /// lock. This is known at once, also of a process that its parent has not yet reaped.
  /// It may be asked when all ranks have entered, not before.
  bool died(int rank) const;

  /// The dead rank that was noticed first by any rank: others may have ended because of
  /// it. `found`: one that this rank has noticed. The word changes once, from 0, by
  /// compare-exchange, and is all that is read: any memory order would do.
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
