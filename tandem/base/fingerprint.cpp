#include "tandem/base/fingerprint.h"

#include <cstring>

namespace tandem {

// The rounds are those of xxHash64, in four independent lanes.
uint64_t fingerprint(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  uint64_t lanes[4] = {1, 2, 3, 4};
  uint64_t words[4];
  size_t at = 0;
  for (; at + sizeof(words) <= size; at += sizeof(words)) {
    std::memcpy(words, bytes + at, sizeof(words));
    for (int lane = 0; lane < 4; ++lane) {
      lanes[lane] = mix(lanes[lane], words[lane]);
    }
  }
  uint64_t hash = size;
  for (; at < size; ++at) {
    hash = mix(hash, static_cast<uint8_t>(bytes[at]));
  }
  for (const uint64_t lane : lanes) {
    hash = mix(hash, lane);
  }
  return hash;
}

}  // namespace tandem
