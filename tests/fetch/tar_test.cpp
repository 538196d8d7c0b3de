#include "app/fetch/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/fetch/unpack.h"
#include "tandem/base/sha256.h"
#include "tests/base/test_tools.h"
#include "tests/fetch/tar_bytes.h"

namespace tandem::app::tar_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using Members = std::vector<std::pair<std::string, std::string>>;

// All plain files of a tar, read in pieces of a size that divides nothing.
Members members_of(const std::string& bytes) {
  size_t at = 0;
  TarReader tar(
      [&](char* data, size_t size) {
        const size_t got = bytes.copy(data, size, at);
        at += got;
        return got;
      },
      "x.tar");
  Members members;
  while (const auto member = tar.next()) {
    std::string content;
    char piece[7];
    while (const size_t got = tar.read(piece, sizeof(piece))) {
      content.append(piece, got);
    }
    EXPECT_EQ(static_cast<int64_t>(content.size()), member->size);
    members.emplace_back(member->name, content);
  }
  return members;
}

std::string refusal_of(const std::string& bytes) {
  return message_of<DataError>([&] { members_of(bytes); });
}

TEST(Tar, PlainFilesAreReadAndDirectoriesPassedOver) {
  const std::string block(512, 'b');
  const std::string old_magic(8, '\0');
  const std::string gnu_magic("ustar  \0", 8);
  EXPECT_THAT(
      members_of(
          tar_member({"d/", "", '5'}) + tar_member({"d/a", "one"}) +
          tar_member({"./d/b", block}) + tar_member({"empty", ""}) +
          tar_member({"old", "three", '\0', old_magic}) +
          tar_member({"old-directory/", "", '\0', old_magic}) +
          tar_member(
              {"c", "four", '0',
               std::string(
                   "ustar\0"
                   "00",
                   8),
               "long/prefix"}) +
          tar_member({"gnu", "five", '0', gnu_magic, "no prefix"}) + tar_end()),
      ElementsAre(
          Pair("d/a", "one"), Pair("d/b", block), Pair("empty", ""),
          Pair("old", "three"), Pair("long/prefix/c", "four"), Pair("gnu", "five")));
}

TEST(Tar, AMemberNeedNotBeReadToItsEnd) {
  const std::string bytes = tar_member({"a", std::string(20'000, 'a')}) +
                            tar_member({"b", "two"}) + tar_end();
  size_t at = 0;
  TarReader tar(
      [&](char* data, size_t size) {
        const size_t got = bytes.copy(data, size, at);
        at += got;
        return got;
      },
      "x.tar");
  EXPECT_EQ(tar.next()->name, "a");
  char some[3];
  EXPECT_EQ(tar.read(some, 3), 3u);
  EXPECT_EQ(tar.next()->name, "b");
  EXPECT_FALSE(tar.next());
}

TEST(Tar, WhatIsNoPlainTarIsRefused) {
  const std::string good = tar_member({"a", std::string(600, 'a')});
  std::string changed = good;
  changed[3] = 'x';
  EXPECT_THAT(refusal_of(changed + tar_end()), HasSubstr("whose sum is wrong"));
  for (const char kind : {'1', '2', '3', '4', '6', '7', 'x', 'g', 'L', 'K', 'S', 'D'}) {
    EXPECT_THAT(
        refusal_of(tar_member({"a", "", kind}) + tar_end()),
        AllOf(HasSubstr("plain files"), HasSubstr(std::string("'") + kind + "'")));
  }
  const std::string base_256 = "\x80" + std::string(10, '\0') + "\x01";
  for (const std::string& size :
       {std::string("99999999999"), std::string(12, '7'), std::string(12, ' '),
        base_256, std::string("-0000000001"), std::string("00000000x01"),
        std::string(12, '\0')}) {
    EXPECT_THAT(
        refusal_of(tar_member({"a", "", '0', "", "", size}) + tar_end()),
        HasSubstr("has no size of 'a'"));
  }
  EXPECT_THAT(
      refusal_of(tar_member({"d", std::string(9, 'd'), '5'}) + tar_end()),
      HasSubstr("has no size of 'd'"));
}

TEST(Tar, AnyShorterLengthIsRefused) {
  const std::string good =
      tar_member({"a", std::string(600, 'a')}) + tar_member({"b", "b"});
  for (size_t size = 0; size < good.size() + 512; ++size) {
    EXPECT_THAT(
        refusal_of((good + tar_end()).substr(0, size)), HasSubstr("ends in the middle"))
        << size;
  }
}

// Eight gigabytes that are not there cost neither memory nor time.
TEST(Tar, ASizeThatIsALieEndsWithTheArchive) {
  EXPECT_THAT(
      refusal_of(tar_member({"a", "x", '0', "", "", "77777777777"})),
      HasSubstr("ends in the middle of a file"));
}

// --- unpacking ---

RemoteSet set_of(const Members& files) {
  RemoteSet set;
  set.name = "own";
  set.archive = RemoteArchive{{"x.tar.gz", 1, ""}, "in"};
  for (const auto& [name, bytes] : files) {
    set.files.push_back(
        {name, static_cast<int64_t>(bytes.size()),
         sha256_hex(bytes.data(), bytes.size())});
  }
  return set;
}

class Unpack : public testing::Test {
 protected:
  void unpack_gzipped(const std::string& packed, const Members& files) const {
    replace_file(folder_.file("x.tar.gz"), packed);
    make_directories(folder_.file("out"));
    unpack(folder_.file("x.tar.gz"), set_of(files), folder_.file("out"));
  }
  void unpack_tar(const std::string& tar, const Members& files) const {
    unpack_gzipped(gzipped(tar), files);
  }
  std::string refusal_of_tar(const std::string& tar, const Members& files) const {
    return message_of<DataError>([&] { unpack_tar(tar, files); });
  }

  const TempDir folder_;
};

const Members kFiles = {{"a", std::string(700'000, 'a')}, {"b", "two"}};

std::string good_tar() {
  return tar_member({"in/", "", '5'}) + tar_member({"in/a", kFiles[0].second}) +
         tar_member({"in/readme", "read me"}) + tar_member({"in/b", "two"}) + tar_end();
}

TEST_F(Unpack, ListedFilesComeAndNoOthers) {
  unpack_tar(good_tar(), kFiles);
  EXPECT_THAT(list_directory(folder_.file("out")), ElementsAre("a", "b"));
  EXPECT_TRUE(read_file(folder_.file("out/a")) == kFiles[0].second);
  EXPECT_EQ(read_file(folder_.file("out/b")), "two");
}

TEST_F(Unpack, NamesThatLeadElsewhereLeadNowhere) {
  std::string tar;
  for (const char* name :
       {"in/../b", "../out/b", "/b", "b", "in//b", "in/b/", "out/b", "in/./b", "in"}) {
    tar += tar_member({name, "two"});
  }
  tar += tar_member({"in/b", "two"}) + tar_end();
  unpack_tar(tar, {{"b", "two"}});
  EXPECT_THAT(list_directory(folder_.file("out")), ElementsAre("b"));
  EXPECT_THAT(list_directory(folder_.path()), ElementsAre("out", "x.tar.gz"));
}

TEST_F(Unpack, FilesThatAreNotAsListedAreRefused) {
  const auto tar_of = [](const std::string& b) {
    return tar_member({"in/b", b}) + tar_end();
  };
  EXPECT_THAT(
      refusal_of_tar(tar_of("twos"), {{"b", "two"}}),
      HasSubstr("holds b of 4 bytes, expected 3"));
  EXPECT_THAT(refusal_of_tar(tar_of("owt"), {{"b", "two"}}), HasSubstr("another b"));
  EXPECT_THAT(list_directory(folder_.file("out")), testing::IsEmpty());
  EXPECT_THAT(refusal_of_tar(tar_of("two"), kFiles), HasSubstr("has no in/a"));
  EXPECT_THAT(
      refusal_of_tar(tar_member({"in/b", "two"}) + tar_of("two"), {{"b", "two"}}),
      HasSubstr("holds b twice"));
}

TEST_F(Unpack, ADamagedArchiveIsRefused) {
  const std::string packed = gzipped(good_tar());
  for (const size_t size :
       {size_t{0}, size_t{5}, packed.size() / 2, packed.size() - 9}) {
    EXPECT_THAT(
        message_of<DataError>([&] { unpack_gzipped(packed.substr(0, size), kFiles); }),
        HasSubstr("x.tar.gz'"))
        << size;
  }
  EXPECT_THAT(
      message_of<DataError>([&] { unpack(folder_.file("none"), set_of(kFiles), "."); }),
      HasSubstr("none' cannot be read"));
}

}  // namespace tandem::app::tar_test
