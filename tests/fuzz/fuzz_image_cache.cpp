// Cache of decoded images. The images of an accepted file are the rest of the file
// after its header. The first byte of an input is the number of images that the folder
// has; the second byte selects a correct version and checksum, which mutations rarely
// hit.

#include <numeric>

#include "tandem/base/sha256.h"
#include "tandem/data/images/image_cache.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace tandem;

const std::string kKey = "key";
constexpr size_t kHeaderBytes = 4096;
// Five numbers of 64 bits.
constexpr size_t kSizesBytes = 40;

// Returns a file whose sizes, key and images are those of the input. The checksum of
// the images is 0.
std::string with_checksum(const std::string& input) {
  const auto taken = input.substr(0, kSizesBytes + kKey.size());
  const auto covered = taken + std::string(sizeof(uint64_t), '\0');
  std::string file =
      "tandem images 2\n" + sha256_hex(covered.data(), covered.size()) + covered;
  file.resize(kHeaderBytes);
  return file + input.substr(taken.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) {
    return 0;
  }
  const int64_t num_images = data[0];
  const std::string input(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string text = data[1] % 2 == 0 ? input : with_checksum(input);
  const Bytes file(std::vector<uint8_t>(text.begin(), text.end()));
  const auto images = parse_image_cache(file, kKey, num_images);
  if (!images) {
    return 0;
  }
  const auto& pixels = images->pixels;
  fuzz::expect(pixels.data() == file.data() + kHeaderBytes, "images follow the header");
  fuzz::expect(pixels.end() == file.end(), "images end with the file");
  const auto& shape = images->shape;
  fuzz::expect(shape.channels == 1 || shape.channels == 3, "gray or RGB");
  // No image has more bytes than the file, so a division cannot overflow.
  const auto bytes = static_cast<int64_t>(pixels.size());
  for (const int64_t side : {shape.size.height, shape.size.width}) {
    fuzz::expect(side > 0 && side <= bytes, "sides fit the file");
  }
  fuzz::expect(
      num_images > 0 && bytes == num_images * shape.bytes(), "an image per sample");
  volatile int sum = std::accumulate(pixels.begin(), pixels.end(), 0);
  (void)has_its_checksum(*images);
  (void)sum;
  return 0;
}
