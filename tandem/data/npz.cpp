#include <fmt/core.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "tandem/base/mapped_file.h"
#include "tandem/base/text.h"
#include "tandem/data/data_memory.h"
#include "tandem/data/npy.h"
#include "tandem/data/npy_format.h"

namespace tandem {

namespace {

// libzip needs up to 6 times as much memory for the directory.
constexpr size_t kMostDirectoryBytes = size_t{4} << 20;
// Larger arrays are verified before memory is allocated for them.
constexpr uint64_t kMostRatio = 4;
// Number of bytes of a read. Some versions of libzip read at most 4 GiB at a time, and
// then report the end of the member.
constexpr size_t kMostPiece = size_t{1} << 20;
const std::string kNpySuffix = ".npy";

std::string in_quotes(const std::string& text) {
  return "'" + text + "'";
}

// Bytes in memory as a source of libzip. Reading fails once `budget` bytes were read,
// so that libzip cannot read a directory of any size.
class ZipSource {
 public:
  ZipSource(const Bytes& bytes, uint64_t budget) : bytes_(bytes), budget_(budget) {
    zip_error_init(&error_);
  }
  ~ZipSource() {
    zip_error_fini(&error_);
  }
  ZipSource(const ZipSource&) = delete;
  ZipSource& operator=(const ZipSource&) = delete;

  bool is_budget_spent() const {
    return budget_ == 0;
  }
  void remove_budget() {
    budget_ = std::numeric_limits<uint64_t>::max();
  }

  // Has the type zip_source_callback.
  static zip_int64_t call(
      void* source, void* data, zip_uint64_t size, zip_source_cmd_t command) {
    return static_cast<ZipSource*>(source)->answer(data, size, command);
  }

 private:
  zip_int64_t answer(void* data, zip_uint64_t size, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT,
            ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
      case ZIP_SOURCE_OPEN:
        offset_ = 0;
        return 0;
      case ZIP_SOURCE_READ:
        return read(static_cast<uint8_t*>(data), size);
      case ZIP_SOURCE_SEEK:
        return seek(data, size);
      case ZIP_SOURCE_TELL:
        return static_cast<zip_int64_t>(offset_);
      case ZIP_SOURCE_STAT: {
        auto* status = static_cast<zip_stat_t*>(data);
        zip_stat_init(status);
        status->size = bytes_.size();
        status->valid = ZIP_STAT_SIZE;
        return sizeof(*status);
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, size);
      default:  // closing and freeing
        return 0;
    }
  }

  zip_int64_t read(uint8_t* to, uint64_t size) {
    const uint64_t got = std::min<uint64_t>(size, bytes_.size() - offset_);
    budget_ -= std::min(got, budget_);
    if (is_budget_spent()) {
      zip_error_set(&error_, ZIP_ER_READ, EFBIG);
      return -1;
    }
    std::copy_n(bytes_.data() + offset_, got, to);
    offset_ += got;
    return static_cast<zip_int64_t>(got);
  }

  zip_int64_t seek(void* arguments, uint64_t size) {
    const zip_int64_t offset = zip_source_seek_compute_offset(
        offset_, bytes_.size(), arguments, size, &error_);
    if (offset < 0) {
      return -1;
    }
    offset_ = static_cast<uint64_t>(offset);
    return 0;
  }

  const Bytes& bytes_;
  uint64_t budget_;
  uint64_t offset_ = 0;
  zip_error_t error_{};
};

// Zip archive in memory, which must outlive the object.
class ZipArchive {
 public:
  ZipArchive(const Bytes& bytes, const std::string& label)
      : source_(bytes, kMostDirectoryBytes), label_(label) {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* source =
        zip_source_function_create(&ZipSource::call, &source_, &error);
    if (source == nullptr) {
      throw std::bad_alloc();
    }
    archive_ = zip_open_from_source(source, ZIP_RDONLY, &error);
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    if (archive_ == nullptr) {
      zip_source_free(source);
      fail_damaged_npy(
          label,
          source_.is_budget_spent()
              ? fmt::format(
                    "has a zip directory of more than {} bytes", kMostDirectoryBytes)
              : "is not a .npz file or is damaged (" + reason + ")");
    }
    source_.remove_budget();
  }
  ~ZipArchive() {
    zip_discard(archive_);
  }
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  uint64_t num_members() const {
    return static_cast<uint64_t>(zip_get_num_entries(archive_, 0));
  }

  zip_stat_t status_of(uint64_t member) const {
    zip_stat_t status;
    if (zip_stat_index(archive_, member, ZIP_FL_ENC_RAW, &status) != 0) {
      fail();
    }
    return status;
  }

  // Returns a reader of an unpacked member. If the member is damaged, the reader throws
  // DataError, for a wrong checksum after the last byte.
  ReadBytes open(uint64_t member, const std::string& label) const {
    const std::shared_ptr<zip_file_t> file(
        zip_fopen_index(archive_, member, 0), [](zip_file_t* opened) {
          if (opened != nullptr) {
            zip_fclose(opened);
          }
        });
    if (file == nullptr) {
      fail();
    }
    return [file, label](uint8_t* to, size_t size) {
      size_t got = 0;
      while (got < size) {
        const zip_int64_t more =
            zip_fread(file.get(), to + got, std::min(kMostPiece, size - got));
        if (more < 0) {
          fail_damaged_npy(
              label, fmt::format("is damaged ({})", zip_file_strerror(file.get())));
        }
        if (more == 0) {
          break;
        }
        got += static_cast<size_t>(more);
      }
      return got;
    };
  }

 private:
  [[noreturn]] void fail() const {
    fail_damaged_npy(label_, fmt::format("is damaged ({})", zip_strerror(archive_)));
  }

  ZipSource source_;
  const std::string& label_;
  zip_t* archive_ = nullptr;
};

struct NpzMember {
  uint64_t index = 0;
  uint64_t bytes = 0;
  // Name of the member in errors.
  std::string label;
  NpyHeader header;
};

// Returns the name of an array. Throws DataError unless the member is an unencrypted
// .npy file that is stored or deflated.
std::string array_name(const zip_stat_t& status, const std::string& label) {
  constexpr zip_uint64_t kWanted =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((status.valid & kWanted) != kWanted) {
    fail_damaged_npy(label, "is damaged (incomplete directory)");
  }
  const std::string name = status.name;
  if (!ends_with(name, kNpySuffix)) {
    fail_npy(
        label, "contains " + in_quotes(name) + ", expected only .npy files; remove it" +
                   " from the archive");
  }
  if (status.encryption_method != ZIP_EM_NONE) {
    fail_npy(
        label,
        "is encrypted, expected numpy.savez's output; decrypt " + in_quotes(name));
  }
  if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
    fail_damaged_npy(
        label, fmt::format(
                   "has '{}' with compression method {}, expected 0 (stored) or 8 "
                   "(deflated)",
                   name, status.comp_method));
  }
  return name.substr(0, name.size() - kNpySuffix.size());
}

// Returns whether a member is one of the arrays to read. All are if `wanted` is empty.
bool is_wanted(const zip_stat_t& status, const std::set<std::string>& wanted) {
  const std::string name = (status.valid & ZIP_STAT_NAME) != 0 ? status.name : "";
  return wanted.empty() ||
         (ends_with(name, kNpySuffix) &&
          wanted.count(name.substr(0, name.size() - kNpySuffix.size())) > 0);
}

std::map<std::string, NpzMember> list_members(
    const ZipArchive& archive, const std::string& label,
    const std::set<std::string>& wanted) {
  std::map<std::string, NpzMember> members;
  for (uint64_t i = 0; i < archive.num_members(); ++i) {
    const zip_stat_t status = archive.status_of(i);
    if (!is_wanted(status, wanted)) {
      continue;
    }
    const std::string name = array_name(status, label);
    const std::string in_errors = label + ": array " + in_quotes(name);
    if (!members.emplace(name, NpzMember{i, status.size, in_errors, {}}).second) {
      fail_damaged_npy(label, "has two arrays " + in_quotes(name));
    }
  }
  if (archive.num_members() == 0) {
    fail_damaged_npy(label, "has no arrays, expected 1 or more");
  }
  return members;
}

// Reads a member to its end, which verifies its size and checksum.
void verify(const NpzMember& member, const ReadBytes& read) {
  std::vector<uint8_t> chunk(size_t{1} << 16);
  uint64_t total = 0;
  while (const size_t got = read(chunk.data(), chunk.size())) {
    total += got;
  }
  if (total != member.bytes) {
    fail_damaged_npy(
        member.label, fmt::format("has {} bytes, expected {}", total, member.bytes));
  }
}

// Reads the headers, checks that the arrays fit into memory, and verifies members that
// are much larger than the file. Allocates no memory for arrays.
void check_members(
    std::map<std::string, NpzMember>& members, const ZipArchive& archive,
    uint64_t file_bytes, const std::string& label) {
  size_t memory = 0;
  bool is_large = false;
  for (auto& [name, member] : members) {
    const ReadBytes read = archive.open(member.index, member.label);
    member.header = read_npy_header(read, member.bytes, member.label);
    memory += member.header.memory_bytes();
    check_data_memory(label, memory, "save each array with numpy.save");
    is_large = is_large || memory / kMostRatio > file_bytes;
  }
  for (const auto& [name, member] : members) {
    if (is_large) {
      verify(member, archive.open(member.index, member.label));
    }
  }
}

}  // namespace

std::map<std::string, NpyArray> parse_npz(
    const Bytes& file, const std::string& name, const std::set<std::string>& wanted) {
  const std::string label = in_quotes(name);
  const ZipArchive archive(file, label);
  auto members = list_members(archive, label, wanted);
  check_members(members, archive, file.size(), label);
  std::map<std::string, NpyArray> arrays;
  for (const auto& [array, member] : members) {
    const ReadBytes read = archive.open(member.index, member.label);
    read_npy_header(read, member.bytes, member.label);
    arrays[array] = read_npy_elements(member.header, read, member.label);
    uint8_t extra = 0;
    if (read(&extra, 1) != 0) {
      fail_damaged_npy(member.label, "continues after its data");
    }
  }
  return arrays;
}

std::map<std::string, NpyArray> read_npz(
    const std::string& path, const std::set<std::string>& wanted) {
  return parse_npz(map_file(path), path, wanted);
}

}  // namespace tandem
