#include "tandem/data/images/image_cache.h"

#include <cstring>
#include <initializer_list>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/base/fingerprint.h"
#include "tandem/base/mapped_file.h"
#include "tandem/base/sha256.h"

namespace tandem {

namespace {

// If the header or the decoded images change, change the number.
constexpr std::string_view kVersion = "tandem images 2\n";
constexpr size_t kDigestBytes = 64;
constexpr size_t kBlockBytes = 4096;

struct Sizes {
  int64_t channels;
  int64_t height;
  int64_t width;
  int64_t num_images;
  int64_t key_bytes;
};
constexpr size_t kSizesAt = kVersion.size() + kDigestBytes;
constexpr size_t kKeyAt = kSizesAt + sizeof(Sizes);

// The checksum of the images follows the key.
size_t header_bytes(size_t key_bytes) {
  const size_t end = kKeyAt + key_bytes + sizeof(uint64_t);
  return (end + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

// Returns whether the product of numbers is `product`.
bool is_product(std::initializer_list<int64_t> numbers, size_t product) {
  size_t all = 1;
  for (const int64_t number : numbers) {
    if (number <= 0 || __builtin_mul_overflow(all, static_cast<size_t>(number), &all)) {
      return false;
    }
  }
  return all == product;
}

}  // namespace

std::string image_cache_header(
    const std::string& key, const ImageShape& shape, int64_t num_images,
    uint64_t checksum) {
  const Sizes sizes{
      shape.channels, shape.size.height, shape.size.width, num_images,
      static_cast<int64_t>(key.size())};
  const std::string rest =
      std::string(reinterpret_cast<const char*>(&sizes), sizeof(sizes)) + key +
      std::string(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  std::string header =
      std::string(kVersion) + sha256_hex(rest.data(), rest.size()) + rest;
  header.resize(header_bytes(key.size()));
  return header;
}

std::optional<DecodedImages> parse_image_cache(
    const Bytes& file, const std::string& key, int64_t num_images) {
  const size_t begin = header_bytes(key.size());
  if (file.size() < begin) {
    return std::nullopt;
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()), begin);
  uint64_t checksum = 0;
  const auto rest =
      header.substr(kSizesAt, sizeof(Sizes) + key.size() + sizeof(checksum));
  Sizes sizes{};
  std::memcpy(&sizes, rest.data(), sizeof(sizes));
  std::memcpy(&checksum, rest.data() + sizeof(sizes) + key.size(), sizeof(checksum));
  if (header.substr(0, kVersion.size()) != kVersion ||
      sizes.key_bytes != static_cast<int64_t>(key.size()) ||
      rest.substr(sizeof(Sizes), key.size()) != key || sizes.num_images != num_images ||
      header.substr(kVersion.size(), kDigestBytes) !=
          sha256_hex(rest.data(), rest.size())) {
    return std::nullopt;
  }
  if ((sizes.channels != 1 && sizes.channels != 3) ||
      !is_product(
          {sizes.channels, sizes.height, sizes.width, num_images},
          file.size() - begin)) {
    return std::nullopt;
  }
  return DecodedImages{
      {{sizes.height, sizes.width}, sizes.channels},
      part_of(file, begin, file.size() - begin),
      true,
      checksum};
}

std::optional<DecodedImages> open_image_cache(
    const std::string& path, const std::string& key, int64_t num_images) {
  try {
    return parse_image_cache(map_file(path), key, num_images);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

bool has_its_checksum(const DecodedImages& images) {
  return fingerprint(images.pixels.data(), images.pixels.size()) == images.checksum;
}

}  // namespace tandem
