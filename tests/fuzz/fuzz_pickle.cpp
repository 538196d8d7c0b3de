// Pickles of torch.save: no input makes the reader access bytes outside of it.

#include "tandem/formats/pickle.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  fuzz::accepts([&] {
    const Pickle pickle(bytes, "input");
    const PickleValue& root = pickle.root();
    fuzz::expect(
        root.kind != PickleValue::Kind::dict || root.items.size() % 2 == 0,
        "each key has a value");
    for (const PickleValue* item : root.items) {
      fuzz::expect(item != nullptr, "each item is there");
    }
  });
  return 0;
}
