#include "tandem/formats/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

namespace {

constexpr uint32_t kHeader = 0x04034b50;
constexpr uint32_t kEntry = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr size_t kHeaderBytes = 30;
constexpr size_t kEntryBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocatorBytes = 20;
constexpr size_t kLongestComment = 0xffff;
// Limits the memory of the entries, which is up to 4 times as much.
constexpr uint64_t kMostDirectoryBytes = uint64_t{64} << 20;
constexpr uint32_t kIn64 = 0xffffffff;

class DirectoryReader {
 public:
  explicit DirectoryReader(const FilePart& archive)
      : archive_(archive), file_(archive.path, std::ios::binary | std::ios::ate) {
    const auto end = file_ ? static_cast<uint64_t>(file_.tellg()) : 0;
    size_ = std::min(archive.size, end - std::min(end, archive.offset));
  }

  std::vector<ZipEntry> read() {
    const auto [offset, bytes] = place();
    if (bytes > kMostDirectoryBytes) {
      fail();
    }
    const std::string directory = at(offset, bytes);
    std::vector<ZipEntry> entries;
    for (size_t next = 0; next < directory.size();) {
      entries.push_back(entry_at(directory, next));
    }
    return entries;
  }

  FilePart bytes_of(const ZipEntry& entry) {
    const std::string header = at(entry.header, kHeaderBytes);
    if (entry.compressed || number<uint32_t>(header, 0) != kHeader) {
      fail();
    }
    const uint64_t begin = entry.header + kHeaderBytes + number<uint16_t>(header, 26) +
                           number<uint16_t>(header, 28);
    if (begin > size_ || entry.size > size_ - begin) {
      fail();
    }
    return {archive_.path, archive_.offset + begin, entry.size};
  }

 private:
  struct Place {
    uint64_t offset;
    uint64_t bytes;
  };

  // Returns the location of the last directory in the file.
  Place place() {
    const size_t last = std::min<uint64_t>(size_, kEndBytes + kLongestComment);
    const std::string tail = at(size_ - last, last);
    for (size_t i = tail.size(); i-- > 0;) {
      if (tail.size() - i >= kEndBytes && number<uint32_t>(tail, i) == kEnd) {
        const auto large = place64(size_ - last + i);
        return large ? *large
                     : Place{
                           number<uint32_t>(tail, i + 16),
                           number<uint32_t>(tail, i + 12)};
      }
    }
    fail();
  }

  std::optional<Place> place64(uint64_t end) {
    if (end < kLocatorBytes) {
      return std::nullopt;
    }
    const auto locator = at(end - kLocatorBytes, kLocatorBytes);
    if (number<uint32_t>(locator, 0) != kLocator64) {
      return std::nullopt;
    }
    const auto found = at(number<uint64_t>(locator, 8), kEnd64Bytes);
    if (number<uint32_t>(found, 0) != kEnd64) {
      fail();
    }
    return Place{number<uint64_t>(found, 48), number<uint64_t>(found, 40)};
  }

  ZipEntry entry_at(const std::string& directory, size_t& next) {
    if (number<uint32_t>(directory, next) != kEntry) {
      fail();
    }
    const size_t name = number<uint16_t>(directory, next + 28);
    const size_t extra = number<uint16_t>(directory, next + 30);
    const size_t comment = number<uint16_t>(directory, next + 32);
    const size_t end = next + kEntryBytes + name + extra + comment;
    if (end > directory.size()) {
      fail();
    }
    ZipEntry entry;
    entry.name = directory.substr(next + kEntryBytes, name);
    entry.size = number<uint32_t>(directory, next + 24);
    uint64_t packed = number<uint32_t>(directory, next + 20);
    const auto more = directory.substr(next + kEntryBytes + name, extra);
    size_t at = 0;
    if (entry.size == kIn64) {
      entry.size = large_number(more, at++);
    }
    if (packed == kIn64) {
      packed = large_number(more, at++);
    }
    entry.header = number<uint32_t>(directory, next + 42);
    if (entry.header == kIn64) {
      entry.header = large_number(more, at++);
    }
    entry.compressed =
        number<uint16_t>(directory, next + 10) != 0 || packed != entry.size;
    next = end;
    return entry;
  }

  // Returns the `index`-th 64-bit number in an entry's extra fields.
  uint64_t large_number(const std::string& extra, size_t index) {
    for (size_t next = 0; next + 4 <= extra.size();) {
      const auto kind = number<uint16_t>(extra, next);
      const size_t size = number<uint16_t>(extra, next + 2);
      if (kind == 1) {
        return number<uint64_t>(extra, next + 4 + 8 * index);
      }
      next += 4 + size;
    }
    fail();
  }

  std::string at(uint64_t offset, uint64_t bytes) {
    if (offset > size_ || bytes > size_ - offset) {
      fail();
    }
    std::string text(bytes, '\0');
    file_.seekg(static_cast<std::streamoff>(archive_.offset + offset));
    if (!file_.read(text.data(), static_cast<std::streamsize>(bytes))) {
      fail();
    }
    return text;
  }

  template <typename T>
  T number(const std::string& bytes, size_t from) const {
    T value{};
    if (from > bytes.size() || sizeof(T) > bytes.size() - from) {
      fail();
    }
    std::memcpy(&value, bytes.data() + from, sizeof(T));
    return value;
  }

  [[noreturn]] void fail() const {
    throw DataError(
        "[weights] '" + archive_.path +
        "' is damaged: its zip directory is incomplete; write it with "
        "torch.save(model.state_dict(), path)");
  }

  const FilePart& archive_;
  std::ifstream file_;
  uint64_t size_ = 0;
};

}  // namespace

void read_bytes(const FilePart& part, void* to) {
  std::ifstream file(part.path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(part.offset));
  if (part.size > 0 &&
      !file.read(static_cast<char*>(to), static_cast<std::streamsize>(part.size))) {
    fail_on_file("read", part.path);
  }
}

std::vector<ZipEntry> read_zip_directory(const FilePart& archive) {
  return DirectoryReader(archive).read();
}

std::vector<ZipEntry> read_zip_directory(const std::string& path) {
  return read_zip_directory(FilePart{path});
}

FilePart bytes_of(const FilePart& archive, const ZipEntry& entry) {
  return DirectoryReader(archive).bytes_of(entry);
}

}  // namespace tandem
