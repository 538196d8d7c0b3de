// safetensors: a file that was read and written is equal when it is read again, and is
// not detected as another format.

#include "tandem/base/files.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/weights_format.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tandem::SafetensorsFile;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto text = [](const at::Tensor& tensor) {
    return std::string_view(
        static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || text(a) == text(b));
}

void expect_same(const SafetensorsFile& a, const SafetensorsFile& b) {
  using tandem::fuzz::expect;
  expect(a.metadata == b.metadata, "metadata comes back");
  expect(a.tensors.size() == b.tensors.size(), "every tensor comes back");
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    expect(a.tensors[i].name == b.tensors[i].name, "a name comes back");
    expect(same_bits(a.tensors[i].tensor, b.tensors[i].tensor), "bits come back");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  // In memory, so that flushing it costs nothing.
  static const std::string path = "/dev/shm/fuzz-" + std::to_string(getpid());
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  SafetensorsFile file;
  if (fuzz::accepts([&] { file = parse_safetensors(bytes, "input"); })) {
    write_safetensors(path, file);
    const std::string written = read_file(path);
    unlink(path.c_str());
    fuzz::expect(
        weights_format(written.substr(0, kWeightsStart), written.size()) ==
            WeightsFormat::safetensors,
        "the format is detected");
    const SafetensorsFile again = parse_safetensors(written, path);
    const std::string hash = again.metadata.at("sha256");
    fuzz::expect(
        file.metadata.emplace("sha256", hash).first->second == hash,
        "the written hash equals the checked hash");
    expect_same(file, again);
  }
  return 0;
}
