#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>

#include "app/fetch/download.h"
#include "tandem/base/sha256.h"
#include "tests/base/test_tools.h"

namespace tandem::app::unpack_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using Members = std::vector<std::pair<std::string, std::string>>;

constexpr char kFile = '0';
constexpr char kHardLink = '1';
constexpr char kSymbolicLink = '2';
constexpr char kDevice = '3';
constexpr char kDirectory = '5';
constexpr char kPaxHeader = 'x';

std::string octal(size_t number, int digits) {
  char text[24];
  std::snprintf(text, sizeof(text), "%0*zo", digits, number);
  return text;
}

// A header and its bytes, written from the description of the format. `size` replaces
// the true size.
std::string member(
    const std::string& name, const std::string& bytes, char kind = kFile,
    const std::string& link = "", const std::string& size = "") {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, octal(0644, 7));
  put(124, size.empty() ? octal(bytes.size(), 11) : size);
  put(148, std::string(8, ' '));
  put(156, std::string(1, kind));
  put(157, link);
  put(257, std::string("ustar\0", 6) + "00");
  size_t sum = 0;
  for (const unsigned char c : header) {
    sum += c;
  }
  put(148, octal(sum, 6) + std::string("\0 ", 2));
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

// A pax header that makes the next member a sparse file of `size` bytes, which begins
// with `hole` zeros.
std::string sparse_header(const std::string& hole, const std::string& size) {
  std::string records;
  for (const auto& text :
       {"GNU.sparse.size=" + size, "GNU.sparse.numblocks=1" + std::string(),
        "GNU.sparse.map=" + hole + ",3"}) {
    // A length that counts itself, with two digits here.
    records += std::to_string(text.size() + 4) + " " + text + "\n";
  }
  return member("pax", records, kPaxHeader);
}

std::string gzipped(const std::string& bytes) {
  std::string packed(compressBound(bytes.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class Unpack : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_fetch()) {
      GTEST_SKIP()
          << "this build has no libcurl or no libarchive; apt-get install "
             "libcurl4-openssl-dev libarchive-dev, then scripts/test -R Unpack";
    }
  }

  void unpack_gzip(const std::string& packed, const Members& files) const {
    RemoteSet set;
    set.archive = RemoteArchive{{"x.tar.gz", 1, ""}, "in"};
    for (const auto& [name, bytes] : files) {
      set.files.push_back(
          {name, static_cast<int64_t>(bytes.size()),
           sha256_hex(bytes.data(), bytes.size())});
    }
    replace_file(folder_ / "x.tar.gz", packed);
    make_directories(folder_ / "out");
    unpack(folder_ / "x.tar.gz", set, folder_ / "out");
  }
  void unpack_tar(const std::string& tar, const Members& files) const {
    unpack_gzip(gzipped(tar + std::string(1024, '\0')), files);
  }

  const Scratch folder_;
};

const Members kFiles = {{"a", std::string(700'000, 'a')}, {"b", "two"}};
const Members kOnlyB = {{"b", "two"}};

TEST_F(Unpack, ExtractsListedFilesOnly) {
  unpack_tar(
      member("in/", "", kDirectory) + member("./in/a", kFiles[0].second) +
          member("in/link", "", kSymbolicLink, "/etc") +
          member("in/readme", "read me") + member("in/b", "two"),
      kFiles);
  EXPECT_THAT(list_directory(folder_ / "out"), ElementsAre("a", "b"));
  EXPECT_TRUE(read_file(folder_ / "out/a") == kFiles[0].second);
  EXPECT_EQ(read_file(folder_ / "out/b"), "two");
}

TEST_F(Unpack, StopsAfterTheLastListedFile) {
  unpack_tar(member("in/b", "two") + std::string(4096, 'x'), kOnlyB);
  EXPECT_EQ(read_file(folder_ / "out/b"), "two");
}

TEST_F(Unpack, UsesNoNameOfTheArchiveAsAPath) {
  std::string tar;
  for (const char* name :
       {"in/../b", "../out/b", "/b", "b", "in//b", "out/b", "in/./b", "in"}) {
    tar += member(name, "two");
  }
  unpack_tar(tar + member("in/b", "two"), kOnlyB);
  EXPECT_THAT(list_directory(folder_ / "out"), ElementsAre("b"));
  EXPECT_THAT(list_directory(folder_.path()), ElementsAre("out", "x.tar.gz"));
}

TEST_F(Unpack, RefusesWrongMembersAndWritesNothing) {
  std::string changed = member("in/b", "two");
  changed[3] = 'x';
  struct Case {
    std::string what;
    std::string tar;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"no such file", member("in/a", "two"), "has no in/b"},
      {"other bytes", member("in/b", "owt"), "holds another b: SHA-256 "},
      {"fewer bytes", member("in/b", "tw"), "holds another b"},
      {"more bytes", member("in/b", std::string(1'000'000, 't')), "holds another b"},
      {"a symbolic link", member("in/b", "", kSymbolicLink, "/etc/passwd"),
       "has no in/b"},
      {"a hard link", member("in/b", "", kHardLink, "/etc/passwd"), "has no in/b"},
      {"a hard link with bytes", member("in/b", "owt", kHardLink, "/etc/passwd"),
       "holds another b"},
      {"a device", member("in/b", "", kDevice), "has no in/b"},
      {"a directory", member("in/b", "", kDirectory), "has no in/b"},
      {"a wrong header sum", changed, "cannot be unpacked: "},
      {"a file whose name is a directory's", member("in/b/", "two"),
       "cannot be unpacked: "},
      {"a size that is no number",
       member("in/b", "two", kFile, "", std::string(12, 'x')), "cannot be unpacked: "},
      {"8 GB that do not follow", member("in/a", "", kFile, "", "77777777777"),
       "cannot be unpacked: "},
      {"a file of 8 GB with a hole first",
       sparse_header("8000000000", "8000000003") + member("in/b", "two"),
       "holds another b"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.what);
    // More than any of the archives, and less than their files claim.
    const FileSizeLimit limit(100'000);
    const auto message = error_of<DataError>([&] { unpack_tar(bad.tar, kOnlyB); });
    EXPECT_THAT(
        message, AllOf(
                     StartsWith("[fetch] '" + folder_ / "x.tar.gz" + "' "),
                     HasSubstr(bad.says), testing::Not(HasSubstr("\n"))));
    EXPECT_THAT(list_directory(folder_ / "out"), testing::IsEmpty());
  }
}

TEST_F(Unpack, RefusesATruncatedArchive) {
  const std::string packed = gzipped(
      member("in/a", kFiles[0].second) + member("in/b", "two") +
      std::string(1024, '\0'));
  for (const size_t size : {size_t{0}, size_t{5}, packed.size() / 2}) {
    EXPECT_THAT(
        error_of<DataError>([&] { unpack_gzip(packed.substr(0, size), kFiles); }),
        HasSubstr("x.tar.gz' cannot be unpacked: "))
        << size;
  }
  expect_error<DataError>(
      [&] { unpack(folder_ / "none", {}, "."); }, {"none' cannot be unpacked: "});
}

}  // namespace tandem::app::unpack_test
