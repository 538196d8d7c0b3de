#include "app/fetch/tar.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::app {

namespace {

constexpr size_t kBlockBytes = 512;
constexpr char kFile = '0';
constexpr char kOldFile = '\0';
constexpr char kDirectory = '5';

using Block = std::array<char, kBlockBytes>;

// Where a header has what.
struct HeaderPart {
  size_t offset;
  size_t size;
};
constexpr HeaderPart kName = {0, 100};
constexpr HeaderPart kSize = {124, 12};
constexpr HeaderPart kSum = {148, 8};
constexpr size_t kKind = 156;
constexpr HeaderPart kMagic = {257, 6};
constexpr HeaderPart kPrefix = {345, 155};

std::string_view part_of(const Block& block, HeaderPart part) {
  return {block.data() + part.offset, part.size};
}

// Ends with a zero byte unless it fills its part.
std::string text_of(const Block& block, HeaderPart part) {
  const auto all = part_of(block, part);
  return std::string(all.substr(0, all.find('\0')));
}

// Octal digits, with spaces before and spaces or zero bytes behind; nothing for others.
// Eleven digits at most, so that no number is too large.
std::optional<int64_t> number_of(const Block& block, HeaderPart part) {
  auto digits = part_of(block, part);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  const size_t end = std::min(digits.find_first_not_of("01234567"), digits.size());
  const auto behind = digits.substr(end);
  if (end == 0 || end > 11 ||
      behind.find_first_not_of(std::string_view(" \0", 2)) != std::string_view::npos) {
    return std::nullopt;
  }
  int64_t number = 0;
  for (const char digit : digits.substr(0, end)) {
    number = 8 * number + (digit - '0');
  }
  return number;
}

// Of all bytes, those of the sum itself taken for spaces.
int64_t sum_of(const Block& block) {
  int64_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kSum.offset && i < kSum.offset + kSum.size;
    sum += own ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

std::string name_of(const Block& block) {
  std::string name = text_of(block, kName);
  // GNU's own format has something else where POSIX has the prefix.
  if (part_of(block, kMagic) == std::string_view("ustar\0", 6)) {
    const std::string prefix = text_of(block, kPrefix);
    name = prefix.empty() ? name : prefix + "/" + name;
  }
  while (name.rfind("./", 0) == 0) {
    name.erase(0, 2);
  }
  return name;
}

}  // namespace

TarReader::TarReader(Source source, std::string archive)
    : source_(std::move(source)), archive_(std::move(archive)) {}

void TarReader::fail(const std::string& what) const {
  throw DataError("[fetch] '" + archive_ + "' " + what);
}

std::optional<TarMember> TarReader::next() {
  for (;;) {
    skip(left_ + padding_);
    left_ = padding_ = 0;
    Block block;
    if (source_(block.data(), block.size()) < block.size()) {
      fail("ends in the middle of its tar; fetch it again");
    }
    if (std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; })) {
      return std::nullopt;
    }
    if (number_of(block, kSum) != sum_of(block)) {
      fail("has a tar header whose sum is wrong; fetch it again");
    }
    const auto size = number_of(block, kSize);
    const char kind = block[kKind];
    const std::string name = name_of(block);
    if (kind != kFile && kind != kOldFile && kind != kDirectory) {
      fail(
          "holds '" + name + "' of kind '" + kind +
          "', expected plain files and directories; pack them with tar --format=ustar");
    }
    if (!size || (kind == kDirectory && *size != 0)) {
      fail("has no size of '" + name + "' in its tar header; fetch it again");
    }
    left_ = *size;
    padding_ = (static_cast<int64_t>(kBlockBytes) - *size % kBlockBytes) % kBlockBytes;
    // Before the kinds of today a directory was a file whose name ends so.
    if (kind != kDirectory && !name.empty() && name.back() != '/') {
      return TarMember{name, *size};
    }
  }
}

size_t TarReader::read(char* data, size_t size) {
  const auto wanted =
      static_cast<size_t>(std::min<uint64_t>(size, static_cast<uint64_t>(left_)));
  if (source_(data, wanted) < wanted) {
    fail("ends in the middle of a file in it; fetch it again");
  }
  left_ -= static_cast<int64_t>(wanted);
  return wanted;
}

void TarReader::skip(int64_t bytes) {
  std::array<char, 1 << 14> ignored;
  while (bytes > 0) {
    const auto wanted = static_cast<size_t>(
        std::min<int64_t>(bytes, static_cast<int64_t>(ignored.size())));
    if (source_(ignored.data(), wanted) < wanted) {
      fail("ends in the middle of a file in it; fetch it again");
    }
    bytes -= static_cast<int64_t>(wanted);
  }
}

}  // namespace tandem::app
