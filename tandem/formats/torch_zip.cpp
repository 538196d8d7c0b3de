#include "tandem/formats/torch_zip.h"

#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

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

bool by_name(const ZipEntry& a, const ZipEntry& b) {
  return a.name < b.name;
}

// Thrown if an archive is incomplete or damaged.
struct BrokenZip {};

// Reads the directory and the headers of entries. Methods throw BrokenZip.
class ZipReader {
 public:
  // `archive` must end within the file.
  explicit ZipReader(const FilePart& archive)
      : archive_(archive), file_(archive.path, std::ios::binary) {}

  std::vector<ZipEntry> directory() {
    const auto [offset, bytes] = place();
    if (bytes > kMostDirectoryBytes) {
      throw BrokenZip();
    }
    const std::string directory = at(offset, bytes);
    std::vector<ZipEntry> entries;
    for (size_t next = 0; next < directory.size();) {
      entries.push_back(entry_at(directory, next));
    }
    return entries;
  }

  FilePart range_of(const ZipEntry& entry) {
    const std::string header = at(entry.header, kHeaderBytes);
    if (entry.compressed || number<uint32_t>(header, 0) != kHeader) {
      throw BrokenZip();
    }
    const uint64_t begin = entry.header + kHeaderBytes + number<uint16_t>(header, 26) +
                           number<uint16_t>(header, 28);
    if (begin > archive_.size || entry.size > archive_.size - begin) {
      throw BrokenZip();
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
    const size_t last = std::min<uint64_t>(archive_.size, kEndBytes + kLongestComment);
    const std::string tail = at(archive_.size - last, last);
    for (size_t i = tail.size(); i-- > 0;) {
      if (tail.size() - i >= kEndBytes && number<uint32_t>(tail, i) == kEnd) {
        const auto large = place64(archive_.size - last + i);
        return large ? *large
                     : Place{
                           number<uint32_t>(tail, i + 16),
                           number<uint32_t>(tail, i + 12)};
      }
    }
    throw BrokenZip();
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
      throw BrokenZip();
    }
    return Place{number<uint64_t>(found, 48), number<uint64_t>(found, 40)};
  }

  ZipEntry entry_at(const std::string& directory, size_t& next) {
    if (number<uint32_t>(directory, next) != kEntry) {
      throw BrokenZip();
    }
    const size_t name = number<uint16_t>(directory, next + 28);
    const size_t extra = number<uint16_t>(directory, next + 30);
    const size_t comment = number<uint16_t>(directory, next + 32);
    const size_t end = next + kEntryBytes + name + extra + comment;
    if (end > directory.size()) {
      throw BrokenZip();
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
    throw BrokenZip();
  }

  std::string at(uint64_t offset, uint64_t bytes) {
    if (offset > archive_.size || bytes > archive_.size - offset) {
      throw BrokenZip();
    }
    std::string text(bytes, '\0');
    file_.seekg(static_cast<std::streamoff>(archive_.offset + offset));
    if (!file_.read(text.data(), static_cast<std::streamsize>(bytes))) {
      throw BrokenZip();
    }
    return text;
  }

  template <typename T>
  static T number(const std::string& bytes, size_t from) {
    T value{};
    if (from > bytes.size() || sizeof(T) > bytes.size() - from) {
      throw BrokenZip();
    }
    std::memcpy(&value, bytes.data() + from, sizeof(T));
    return value;
  }

  const FilePart& archive_;
  std::ifstream file_;
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

TorchZip::TorchZip(FilePart archive, std::string part, std::string action)
    : archive_(std::move(archive)), part_(std::move(part)), action_(std::move(action)) {
  if (!std::ifstream(archive_.path)) {
    fail_on_file("read", archive_.path);
  }
  std::error_code ignored;
  const uint64_t end = std::filesystem::file_size(archive_.path, ignored);
  archive_.size = std::min(archive_.size, end - std::min(end, archive_.offset));
  try {
    entries_ = ZipReader(archive_).directory();
  } catch (const BrokenZip&) {
    fail("is damaged or not a zip archive of PyTorch");
  }
  for (auto& entry : entries_) {
    entry.name.erase(0, entry.name.find('/') + 1);
  }
  std::sort(entries_.begin(), entries_.end(), &by_name);
  check_entries();
}

// Checks the sum of the sizes, since entries may overlap.
void TorchZip::check_entries() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const ZipEntry& entry = entries_[i];
    if (entry.compressed) {
      if (entry.name.rfind("code/", 0) == 0) {
        continue;
      }
      refuse("has the compressed entry '" + entry.name + "'");
    }
    if (entry.size > archive_.size || (bytes += entry.size) > archive_.size) {
      refuse("has entries of more bytes than the file");
    }
    if (i > 0 && entries_[i - 1].name == entry.name) {
      fail("has two entries '" + entry.name + "'");
    }
  }
}

const ZipEntry* TorchZip::find(const std::string& name) const {
  ZipEntry wanted;
  wanted.name = name;
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), wanted, &by_name);
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

bool TorchZip::has_start(const std::string& start) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const ZipEntry& entry) {
    return entry.name.rfind(start, 0) == 0;
  });
}

FilePart TorchZip::range_of(const std::string& name) const {
  const ZipEntry* entry = find(name);
  if (entry == nullptr) {
    fail("has no entry '" + name + "'");
  }
  try {
    return ZipReader(archive_).range_of(*entry);
  } catch (const BrokenZip&) {
    fail("has the damaged entry '" + name + "'");
  }
}

std::string TorchZip::content_of(const std::string& name) const {
  const FilePart range = range_of(name);
  std::string content(range.size, '\0');
  read_bytes(range, content.data());
  return content;
}

void TorchZip::fail(const std::string& problem) const {
  throw DataError(part_ + " '" + archive_.path + "' " + problem + "; " + action_);
}

void TorchZip::refuse(const std::string& problem) const {
  throw ConfigError(part_ + " '" + archive_.path + "' " + problem + "; " + action_);
}

void write_torch_zip(const std::string& path, const std::vector<ZipRecord>& records) {
  replace_file(path, [&](int fd) {
    // LibTorch's writer contains C code, through which an exception cannot pass.
    std::exception_ptr error;
    caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, size_t size) {
      try {
        if (!error) {
          write_all(fd, data, size, path);
        }
      } catch (...) {
        error = std::current_exception();
      }
      return size;
    });
    for (const auto& record : records) {
      archive.writeRecord(record.name, record.data, record.size);
    }
    archive.writeEndOfFile();
    if (error) {
      std::rethrow_exception(error);
    }
  });
}

}  // namespace tandem
