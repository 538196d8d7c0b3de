#include "tandem/formats/weights_format.h"

#include <cstring>

namespace tandem {

namespace {

using namespace std::string_view_literals;

// First bytes of a zip archive with records, and of a zip archive without records.
constexpr auto kZipRecord = "PK\3\4"sv;
constexpr auto kEmptyZip = "PK\5\6"sv;

// First byte of a pickle; the protocol's number follows.
constexpr auto kPickleProtocol = "\x80"sv;
// torch.save's magic number 0x1950a86a20f9469cfc6c, as a pickle writes it.
constexpr auto kTorchMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;
// Possible offsets of the magic number: after the two bytes of the protocol; since
// protocol 4, also after the nine bytes of a frame.
constexpr size_t kMagicPlaces[] = {2, 11};

constexpr auto kTarMagic = "ustar"sv;
constexpr size_t kTarMagicPlace = 257;

bool has_at(std::string_view text, size_t place, std::string_view part) {
  return text.size() >= place + part.size() && text.substr(place, part.size()) == part;
}

// Returns whether a file begins with 8 bytes for the length of the header,
// little-endian, and a header of JSON.
bool is_safetensors(std::string_view start, uint64_t file_size) {
  uint64_t length = 0;
  if (start.size() <= sizeof(length)) {
    return false;
  }
  std::memcpy(&length, start.data(), sizeof(length));
  return start[sizeof(length)] == '{' && length <= file_size - sizeof(length);
}

bool is_legacy_torch(std::string_view start) {
  for (const size_t place : kMagicPlaces) {
    if (has_at(start, 0, kPickleProtocol) && has_at(start, place, kTorchMagic)) {
      return true;
    }
  }
  return has_at(start, kTarMagicPlace, kTarMagic);
}

}  // namespace

WeightsFormat weights_format(std::string_view start, uint64_t file_size) {
  // A safetensors header starts with '{' at offset 8. Files of other formats have other
  // bytes at this offset: the compression method of a zip archive, or the magic number
  // or frame length of a pickle.
  if (is_safetensors(start, file_size)) {
    return WeightsFormat::safetensors;
  }
  if (has_at(start, 0, kZipRecord) || has_at(start, 0, kEmptyZip)) {
    return WeightsFormat::zip;
  }
  return is_legacy_torch(start) ? WeightsFormat::legacy_torch : WeightsFormat::unknown;
}

}  // namespace tandem
