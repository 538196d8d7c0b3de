// The store's requests: bytes that can be decoded equal their encoding.

#include "tandem/base/store/protocol.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  store_protocol::Request request;
  if (store_protocol::decode(bytes, request)) {
    fuzz::expect(store_protocol::encode(request) == bytes, "a request comes back");
  }
  return 0;
}
