// Memory that a worker inherits as its data set. The input is the header after its
// first line, so new settings do not make the corpus invalid. A data set that is
// accepted lies inside the memory for any header; otherwise the worker reads the files,
// which do not exist here.

#include <fcntl.h>

#include <numeric>

#include "tandem/data/prepared_data.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace tandem;

const char* const kName = "/no-such-folder";

constexpr size_t kPageBytes = 4096;

size_t whole_pages(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Prepares the memory as a DataReader does: the header in whole pages, then samples.
// Returns its size.
size_t offer(std::string bytes) {
  bytes.resize(whole_pages(bytes.size()));
  bytes.append(4 * kPageBytes, '\1');
  const int memory = memfd_create("fuzz", MFD_ALLOW_SEALING);
  const auto size = static_cast<ssize_t>(bytes.size());
  fuzz::expect(write(memory, bytes.data(), bytes.size()) == size, "it is filled");
  fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
  int ends[2];
  fuzz::expect(pipe(ends) == 0, "there is a pipe");
  close(ends[1]);
  const auto text = std::to_string(memory) + " " + std::to_string(ends[0]) + " " +
                    std::to_string(getpid());
  setenv("TANDEM_PREPARED_DATA", text.c_str(), 1);
  return bytes.size();
}

// Other memory may follow, so reading alone does not detect sizes that are too large.
void look_at(const Dataset& split, size_t& offset, size_t end) {
  const auto size = static_cast<size_t>(split.size);
  for (const auto* samples : {&split.inputs, &split.targets}) {
    fuzz::expect(
        samples->bytes.size() == size * static_cast<size_t>(samples->sample_bytes()),
        "an input and a target for each sample");
  }
  for (const auto* bytes : {&split.inputs.bytes, &split.targets.bytes}) {
    fuzz::expect(offset + bytes->size() <= end, "the samples lie in the memory");
    offset += whole_pages(bytes->size());
    volatile int sum = std::accumulate(bytes->begin(), bytes->end(), 0);
    (void)sum;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const DataRequest request(kName);
  const std::string header(reinterpret_cast<const char*>(data), size);
  const size_t end = offer(prepared_data_key(request) + "\n" + header);
  fuzz::accepts([&] {
    const auto splits = load_prepared_dataset(request);
    // After the header, which has at least one page.
    size_t offset = kPageBytes;
    look_at(splits.train, offset, end);
    look_at(splits.test, offset, end);
    look_at(splits.validation, offset, end);
  });
  return 0;
}
