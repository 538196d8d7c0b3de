#pragma once

#include <cstdint>

namespace tandem {

/// While the object exists, its thread sometimes yields or sleeps in code compiled with
/// -finstrument-functions: where a function begins or ends, also an inlined function,
/// so before and after every access to an atomic. At most one object per thread.
class RandomDelays {
 public:
  explicit RandomDelays(uint64_t seed);
  ~RandomDelays();
  RandomDelays(const RandomDelays&) = delete;
  RandomDelays& operator=(const RandomDelays&) = delete;

  /// Returns how often the thread could have been delayed.
  int64_t num_places() const;
};

}  // namespace tandem
