// Recipes: a config that was read, checked and written is equal when it is read again.

#include "tandem/config/run_config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static const fuzz::MemoryFile file;
  file.write({reinterpret_cast<const char*>(data), size});
  RunConfig config;
  if (fuzz::accepts([&] { read_recipe(config, file.path()); })) {
    fuzz::accepts([&] { check(config); });
    const std::string text = to_toml(config);
    file.write(text);
    RunConfig again;
    read_recipe(again, file.path());
    fuzz::expect(to_toml(again) == text, "a config comes back");
  }
  return 0;
}
