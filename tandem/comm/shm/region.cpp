#include "tandem/comm/shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/host.h"

namespace tandem {

namespace {

// Header of the region, before the blocks. The nonce is random and part of the address.
// If the descriptor's number now belongs to another file, that file does not begin with
// the nonce.
struct Header {
  uint64_t nonce;
  // First dead rank + 1; 0 while all ranks exist. See first_lost() in region.h.
  std::atomic<int32_t> first_lost;
};
constexpr size_t kHeaderBytes = 4096;

size_t bytes_of(int size) {
  const auto ranks = static_cast<size_t>(size);
  return kHeaderBytes + ranks * sizeof(ShmRankBlock) + ranks * ranks * sizeof(ShmRing);
}

// Returns the lock of a rank, which covers one byte of the file. The lock belongs to
// the open file (F_OFD_SETLK), not to the process, so ranks that are threads have
// separate locks.
struct flock lock_of(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

[[noreturn]] void refuse(const std::string& what) {
  const std::string cause = std::strerror(errno);
  throw ConfigError(
      "[comm] backend shm cannot " + what + ": " + cause +
      "; run all ranks on one host, in one container and as one user, or use "
      "--backend gloo");
}

}  // namespace

std::shared_ptr<ShmRegion> ShmRegion::create(int size) {
  std::random_device random;
  const uint64_t nonce = (uint64_t{random()} << 32 | random()) | 1;
  Descriptor file(memfd_create("tandem-ranks", MFD_CLOEXEC));
  if (!file || ftruncate(file.fd(), static_cast<off_t>(bytes_of(size))) != 0) {
    refuse("create shared memory");
  }
  std::shared_ptr<ShmRegion> region(new ShmRegion(std::move(file), size, nonce));
  reinterpret_cast<Header*>(region->memory_)->nonce = nonce;
  return region;
}

std::shared_ptr<ShmRegion> ShmRegion::attach(const std::string& address, int size) {
  std::string host;
  long pid = 0;
  int made = 0;
  uint64_t nonce = 0;
  const bool read =
      static_cast<bool>(std::istringstream(address) >> host >> pid >> made >> nonce);
  if (host != host_identity()) {
    throw ConfigError(
        "[comm] backend shm needs all ranks on one host, but a rank is on another host "
        "than rank 0, or in another container; use --backend gloo");
  }
  if (!read || nonce == 0) {
    errno = EINVAL;
    refuse("use rank 0's shared memory, whose address cannot be read");
  }
  const std::string path =
      "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(made);
  Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.fd(), &info) != 0) {
    refuse("open rank 0's shared memory at " + path);
  }
  if (static_cast<size_t>(info.st_size) != bytes_of(size)) {
    errno = ESTALE;
    refuse("use rank 0's shared memory at " + path);
  }
  std::shared_ptr<ShmRegion> region(new ShmRegion(std::move(file), size, nonce));
  if (reinterpret_cast<Header*>(region->memory_)->nonce != nonce) {
    errno = ESTALE;
    refuse("use rank 0's shared memory at " + path);
  }
  return region;
}

ShmRegion::ShmRegion(Descriptor file, int size, uint64_t nonce)
    : file_(std::move(file)), size_(size), nonce_(nonce), bytes_(bytes_of(size)) {
  void* memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd(), 0);
  if (memory == MAP_FAILED) {
    refuse("map " + std::to_string(bytes_) + " bytes of shared memory");
  }
  memory_ = static_cast<char*>(memory);
}

ShmRegion::~ShmRegion() {
  leave();
  munmap(memory_, bytes_);
}

std::string ShmRegion::address() const {
  return host_identity() + " " + std::to_string(getpid()) + " " +
         std::to_string(file_.fd()) + " " + std::to_string(nonce_);
}

void ShmRegion::enter(int rank) {
  struct flock lock = lock_of(rank);
  if (fcntl(file_.fd(), F_OFD_SETLK, &lock) != 0) {
    refuse("lock the byte of rank " + std::to_string(rank));
  }
  rank_ = rank;
  block(rank).pid = getpid();
  block(rank).state.store(ShmRankBlock::attached, std::memory_order_release);
}

void ShmRegion::leave() {
  if (rank_ >= 0) {
    block(rank_).state.store(ShmRankBlock::left, std::memory_order_seq_cst);
  }
}

bool ShmRegion::died(int rank) const {
  struct flock lock = lock_of(rank);
  const bool released = fcntl(file_.fd(), F_OFD_GETLK, &lock) == 0 &&
                        lock.l_type == F_UNLCK && rank != rank_;
  return released && block(rank).state.load() == ShmRankBlock::attached;
}

int ShmRegion::first_lost(int found) const {
  auto& first = reinterpret_cast<Header*>(memory_)->first_lost;
  int32_t known = 0;
  return first.compare_exchange_strong(known, found + 1) ? found : known - 1;
}

ShmRankBlock& ShmRegion::block(int rank) const {
  return reinterpret_cast<ShmRankBlock*>(memory_ + kHeaderBytes)[rank];
}

ShmRing& ShmRegion::ring(int from, int to) const {
  char* rings =
      memory_ + kHeaderBytes + static_cast<size_t>(size_) * sizeof(ShmRankBlock);
  return reinterpret_cast<ShmRing*>(rings)[from * size_ + to];
}

}  // namespace tandem
