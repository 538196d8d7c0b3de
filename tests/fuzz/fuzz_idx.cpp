// IDX: an input that is accepted is the file of its array, byte for byte.

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/idx_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const size_t num_dims : {size_t{1}, size_t{3}}) {
    IdxArray array;
    if (fuzz::accepts([&] { array = parse_idx(bytes, "input", num_dims); }) &&
        bytes[0] == 0) {
      fuzz::expect(array.dims.size() == num_dims, "the array has the rank asked for");
      fuzz::expect(fuzz::idx_bytes(array) == bytes, "the array is the whole file");
    }
  }
  return 0;
}
