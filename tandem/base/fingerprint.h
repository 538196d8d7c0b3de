#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

/// Returns a hash of bytes, in about the time that a copy of them takes. It finds
/// damaged and different bytes, but not those that a person chose to have an equal
/// hash (sha256.h). The hash depends on the byte order of the host.
uint64_t fingerprint(const void* data, size_t size);

/// Returns a hash of `hash` and another number.
inline uint64_t mix(uint64_t hash, uint64_t word) {
  hash += word * 0xc2b2ae3d27d4eb4full;
  return (hash << 31 | hash >> 33) * 0x9e3779b185ebca87ull;
}

}  // namespace tandem
