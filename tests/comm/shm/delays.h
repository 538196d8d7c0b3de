#pragma once

#include <cstdint>

namespace tandem {

/// While the object exists, its thread yields or sleeps at random places. The places
/// are the beginnings and ends of functions that are compiled with
/// -finstrument-functions, including inlined functions. So they are before and after
/// every access to an atomic. At most one object per thread.
class RandomDelays {
 public:
  explicit RandomDelays(uint64_t seed);
  ~RandomDelays();
  RandomDelays(const RandomDelays&) = delete;
  RandomDelays& operator=(const RandomDelays&) = delete;

  /// Returns the number of places that the thread has passed.
  int64_t num_places() const;
};

}  // namespace tandem
