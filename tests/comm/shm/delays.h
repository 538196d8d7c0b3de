#pragma once

#include <cstdint>

namespace tandem {

/// While it lives, its thread now and then gives way or sleeps in code compiled with
/// -finstrument-functions: where a function begins or ends, inlined ones too, so
/// before and after every access to an atomic. Not twice in one thread.
class RandomDelays {
 public:
  explicit RandomDelays(uint64_t seed);
  ~RandomDelays();
  RandomDelays(const RandomDelays&) = delete;
  RandomDelays& operator=(const RandomDelays&) = delete;

  /// How many places the thread has come by where it may be delayed.
  int64_t num_places() const;
};

}  // namespace tandem
