#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "tandem/base/descriptor.h"

namespace tandem {

/// Copies bytes. Unlike memcpy(), accepts null pointers if `bytes` is 0; an empty
/// tensor has a null pointer.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

// The ranks of one host share an anonymous file (memfd) that each rank maps. The file
// uses no space of a file system (a container's /dev/shm may be limited to 64 MiB). The
// kernel removes it with its last user, even after crashes. Other ranks open it as
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
// A block is written only by its own rank, except `bell` and `sleeping`; no other cache
// line of a block has two writers. A subgroup (split()) has a separate region for
// announcements, chunks, rings, their counters, and `state`. It uses the region of its
// family (family.h) for all other data, and to detect dead ranks.
//
// Memory order. Each counter has one writer, starts at 0, only grows, and is stored
// with release. A rank loads a counter with acquire (or seq_cst, which is stronger). If
// the counter is n or more, the rank sees everything that the writer did before the
// store of n. The counters form pairs, so that a slot is written only when it is free
// and read only when it is full:
//
//   marks a slot as full, by its writer        marks it as free, by each reader
//   ShmAnnouncement::sequence                  operations_done
//   Flag::sequence of a chunk                  chunks_done
//   ShmRing::written                           ShmRing::read
//
// Comments describe the memory order of all other atomic members.

/// Announcement of an operation by one rank. It includes the rank's data if they are
/// small, so that the operation needs only one transfer between cores. The first 24
/// bytes of the payload share a cache line with the words before it.
struct alignas(64) ShmAnnouncement {
  static constexpr size_t kPayloadBytes = 8192 + 24;

  // Number of the operation + 1, written last. It publishes the rest of this struct
  // and, if the tensor is in shared memory, the tensor's values and its entry in
  // `segments`.
  std::atomic<uint64_t> sequence;
  // Encoded description of the call, equal on all ranks if their calls are equal.
  uint64_t signature;
  uint64_t numel;
  // Location of the tensor (segments.h). `segment` is 0 if other ranks cannot access
  // the tensor.
  uint64_t segment;
  uint64_t offset;
  char payload[kPayloadBytes];
};

/// Entry for a buffer that other ranks may map. The rank that owns the entry writes it
/// only while no buffer uses it. Other ranks read the entry only after an acquire load
/// of an announcement, or of a message of an Rpc (shm_rpc.h), that names the buffer.
/// The buffer is kept at least until all ranks that need the entry have read it.
struct ShmSegmentEntry {
  // Incremented for every new buffer in this entry. Announcements and messages contain
  // the version and publish the entry, so the memory order of this word does not
  // matter.
  std::atomic<uint64_t> version;
  int64_t fd;
  int64_t bytes;
};

/// The part of the region that belongs to one rank.
struct ShmRankBlock {
  static constexpr uint64_t kAnnouncements = 16;
  static constexpr uint64_t kChunks = 8;
  // Size of a chunk, so that two chunks of each of two ranks (512 KiB) fit into half of
  // an L2 cache of 1 MiB.
  static constexpr int64_t kChunkBytes = int64_t{128} << 10;
  static constexpr size_t kSegments = 128;

  enum State : uint32_t { absent, attached, left };

  // State of the block's rank, which changes from absent to attached to left, never
  // back. Only that rank stores the state; other ranks load it. `left` is stored with
  // release and loaded with acquire (both are seq_cst). A rank that loads `left`
  // therefore sees all data that were written before, and processes them before it
  // reports an error. `left` is stored before the rank's lock is released, and died()
  // checks the lock first. So a rank that calls leave() is not reported as dead.
  alignas(64) std::atomic<uint32_t> state;
  int64_t pid;
  // Number of operations that this rank has finished. This rank no longer reads
  // announcements of these operations. A rank announces operation n only when
  // operations_done of every rank is above n - kAnnouncements. The acquire loads of
  // these counters ensure that the last reads of an announcement happen before its slot
  // is overwritten.
  alignas(64) std::atomic<uint64_t> operations_done;
  // Number of chunks that this rank has read. A rank writes chunk n only when
  // chunks_done of every rank is above n - kChunks, for the same reason as with
  // operations_done.
  std::atomic<uint64_t> chunks_done;
  // Futex on which this rank sleeps. A rank that rings adds 1 and then wakes the
  // sleeper. The sleeper reads the bell before it sets `sleeping`, so if another rank
  // rings in between, the futex call returns immediately.
  alignas(64) std::atomic<uint32_t> bell;
  // 1 while this rank sleeps or is about to sleep, until another rank rings; otherwise
  // 0. This rank stores 1 and 0. A rank that rings exchanges the value with 0, so that
  // only one of several ranks rings. The sleeper stores 1 and then checks for new data;
  // another rank writes data and then checks this word. Both ranks have a seq_cst fence
  // between the two steps, so at least one rank sees the write of the other rank. With
  // release and acquire alone, both ranks could check too early, and no rank would
  // ring.
  std::atomic<uint32_t> sleeping;
  // Number of the core on which this rank last wrote or waited, plus 1. All accesses
  // are relaxed, because the value is only a hint and publishes no data.
  alignas(64) std::atomic<int32_t> cpu;
  ShmSegmentEntry segments[kSegments];
  ShmAnnouncement announcements[kAnnouncements];
  // Number of the chunk + 1, stored after the chunk is written. If the ranks' tensors
  // are in shared memory, the rank writes its results into the tensors of all ranks
  // instead of the chunk; this number then publishes these results.
  struct alignas(64) Flag {
    std::atomic<uint64_t> sequence;
  };
  Flag chunk_flags[kChunks];
  alignas(4096) char chunks[kChunks][kChunkBytes];
};

/// Bytes in transit from one rank to another. Byte i since the start is at data[i %
/// kBytes].
struct ShmRing {
  static constexpr size_t kBytes = size_t{256} << 10;

  // Numbers of bytes since the start: read <= written <= read + kBytes. The sender
  // stores `written`, the receiver stores `read`. Each rank loads its own counter with
  // relaxed order.
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) char data[kBytes];
};

/// One rank's mapping of the region. A page uses memory only after it was first
/// accessed.
class ShmRegion {
 public:
  /// Creates a region. Other ranks attach to its address().
  static std::shared_ptr<ShmRegion> create(int size);

  /// Maps the region with this address(), for a group of `size` ranks. Throws
  /// ConfigError if this process cannot map the region, for example because its rank is
  /// on another host or belongs to another user.
  static std::shared_ptr<ShmRegion> attach(const std::string& address, int size);

  ~ShmRegion();
  ShmRegion(const ShmRegion&) = delete;
  ShmRegion& operator=(const ShmRegion&) = delete;

  /// Returns a line of text that other ranks pass to attach(). It is valid while this
  /// object exists.
  std::string address() const;

  /// Marks this rank as present. If the rank then ends without a call of leave(), other
  /// ranks detect its death.
  void enter(int rank);
  void leave();

  /// Returns whether a rank ended without leave(). The kernel releases the lock of a
  /// rank that ends. The result is therefore correct immediately, even if the parent
  /// has not yet reaped the process. Call it only after all ranks have called enter().
  bool died(int rank) const;

  /// Returns the rank whose death was detected first, by any rank. Ranks that died
  /// later may have ended as a consequence. `found` is a dead rank that this rank has
  /// detected.
  ///
  /// The result is in a shared word, which changes only once, from 0, in a
  /// compare-exchange. The word publishes no other data, so any memory order would be
  /// correct.
  int first_lost(int found) const;

  ShmRankBlock& block(int rank) const;
  ShmRing& ring(int from, int to) const;

 private:
  ShmRegion(Descriptor file, int size, uint64_t nonce);

  Descriptor file_;
  int size_;
  uint64_t nonce_;
  char* memory_ = nullptr;
  size_t bytes_ = 0;
  int rank_ = -1;
};

}  // namespace tandem
