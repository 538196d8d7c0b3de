// The shared memory of a host's ranks, whose first rank puts its address into the
// store. Only memory of the right size that begins with the number in the address is
// accepted, and the whole memory can be used.
//
// An input consists of the difference of the memory's size in bytes; an address, up to
// the end of the line, in which '@' is replaced with this host, process and descriptor;
// and the beginning of the memory.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tandem/base/host.h"
#include "tandem/comm/shm/region.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace tandem;

constexpr int kRanks = 2;
const off_t kBytes = 4096 + kRanks * off_t{sizeof(ShmRankBlock)} +
                     kRanks * kRanks * off_t{sizeof(ShmRing)};

int memory_of(const std::string& beginning, off_t bytes) {
  const int memory = memfd_create("fuzz", MFD_CLOEXEC);
  fuzz::expect(ftruncate(memory, bytes) == 0, "it has the size");
  const auto filled = std::min(beginning.size(), static_cast<size_t>(bytes));
  fuzz::expect(
      pwrite(memory, beginning.data(), filled, 0) == static_cast<ssize_t>(filled),
      "it is filled");
  return memory;
}

std::string address_of(std::string text, int memory) {
  const auto here =
      host_identity() + " " + std::to_string(getpid()) + " " + std::to_string(memory);
  const auto at = text.find('@');
  return at == std::string::npos ? text : text.replace(at, 1, here);
}

void use(const ShmRegion& region) {
  for (int rank = 0; rank < kRanks; ++rank) {
    region.block(rank)
        .chunks[ShmRankBlock::kChunks - 1][ShmRankBlock::kChunkBytes - 1] = 1;
    region.ring(rank, kRanks - 1).data[ShmRing::kBytes - 1] = 1;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const off_t wrong = input.empty() ? 0 : static_cast<signed char>(input[0]);
  const auto line = input.substr(std::min<size_t>(1, size), input.find('\n'));
  const auto beginning = input.substr(std::min(input.size(), line.size() + 1));
  const int memory = memory_of(beginning, kBytes + wrong);
  const auto address = address_of(line.substr(0, line.find('\n')), memory);
  fuzz::accepts([&] {
    const auto region = ShmRegion::attach(address, kRanks);
    fuzz::expect(wrong == 0, "the memory has the right size");
    // The rest of the memory is zeros.
    uint64_t held = 0;
    std::memcpy(&held, beginning.data(), std::min(beginning.size(), sizeof(held)));
    fuzz::expect(
        held != 0 && address.find(std::to_string(held)) != std::string::npos,
        "it begins with the number in the address");
    use(*region);
  });
  close(memory);
  return 0;
}
