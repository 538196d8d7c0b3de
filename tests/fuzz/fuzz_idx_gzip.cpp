// IDX in gzip: an array that is accepted equals the output of zlib's reader.

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/gzip_bytes.h"
#include "tests/fuzz/idx_bytes.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Half of the mutations change the unpacked bytes, since no change of packed bytes
// keeps a checksum.
extern "C" size_t LLVMFuzzerCustomMutator(
    uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  bool good = false;
  std::string plain = tandem::fuzz::unpacked(
      {reinterpret_cast<const char*>(data), size}, max_size, good);
  if (seed % 2 == 0 || !good) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const size_t length = plain.size();
  plain.resize(max_size);
  plain.resize(
      LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(plain.data()), length, max_size));
  const std::string again = tandem::fuzz::packed(plain);
  return again.copy(reinterpret_cast<char*>(data), max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  IdxArray array;
  if (size > 1 && data[0] == 0x1f &&
      fuzz::accepts([&] { array = parse_idx(bytes, "input", 3); })) {
    bool good = false;
    const std::string plain = fuzz::unpacked(bytes, array.values.size() + 100, good);
    fuzz::expect(good, "zlib takes it too");
    fuzz::expect(plain == fuzz::idx_bytes(array), "the array is all that is packed");
    fuzz::expect(
        !fuzz::accepts([&] { parse_idx(bytes + "x", "input", 3); }),
        "nothing may follow the gzip data");
  }
  return 0;
}
