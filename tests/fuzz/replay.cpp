// Passes the inputs of a corpus to its fuzz target, in any build, without clang's
// fuzzer.
//
//   replay_NAME FOLDER             each file of the folder once, named before it is
//   tried

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tandem/base/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Called by mutators, which only the fuzzer uses.
extern "C" size_t LLVMFuzzerMutate(
    uint8_t* /*data*/, size_t size, size_t /*max_size*/) {
  return size;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: replay_NAME FOLDER\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  const auto names = tandem::list_directory(folder);
  for (const auto& name : names) {
    std::fprintf(stderr, "%s\n", name.c_str());
    const std::string bytes = tandem::read_file(folder + name);
    // A buffer of the exact size, so that a sanitizer detects a read past its end.
    const std::vector<uint8_t> input(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::fprintf(stderr, "%zu inputs\n", names.size());
  return names.empty() ? 1 : 0;
}
