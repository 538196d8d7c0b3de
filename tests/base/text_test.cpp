#include "tandem/base/text.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace tandem::text_test {

// U+7F, U+80, U+7FF, U+800, U+D7FF, U+E000, U+FFFF, U+10000, U+10FFFF.
const std::vector<std::string> kCharacters = {
    "\x7f",         "\xc2\x80",         "\xdf\xbf",
    "\xe0\xa0\x80", "\xed\x9f\xbf",     "\xee\x80\x80",
    "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};

TEST(FindInvalidUtf8, AcceptsTheFirstAndLastCharactersOfEachLength) {
  for (const auto& character : kCharacters) {
    EXPECT_EQ(find_invalid_utf8("a" + character + "b"), std::nullopt);
  }
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
}

TEST(FindInvalidUtf8, ReturnsThePositionOfOtherBytes) {
  // A lone following byte, Latin-1, overlong forms, a surrogate, U+110000, ends of the
  // text inside a character.
  for (const std::string bytes :
       {"\x80", "\xf6ln", "\xc0\x80", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
        "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88", "\xc3", "\xe2\x82",
        "\xf0\x9f\x98"}) {
    EXPECT_EQ(find_invalid_utf8("\xc3\xa4 " + bytes), 3u) << with_escapes(bytes);
  }
}

TEST(FindInvalidUtf8, ReadsLongTexts) {
  for (size_t length = 0; length < 40; ++length) {
    const std::string ascii(length, 'x');
    EXPECT_EQ(find_invalid_utf8(ascii + "\xff" + ascii), length);
    EXPECT_EQ(find_invalid_utf8(ascii + "\xc3\xa4" + ascii + "\xff"), 2 * length + 2);
    EXPECT_EQ(find_invalid_utf8(ascii + "\xc3\xa4" + ascii), std::nullopt);
  }
}

TEST(DescribeInvalidUtf8, NamesTheByteAndItsPosition) {
  EXPECT_EQ(describe_invalid_utf8("K\xf6ln"), "the byte f6 at position 2");
  EXPECT_EQ(describe_invalid_utf8("Koeln"), std::nullopt);
}

TEST(WithEscapes, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(with_escapes("K\xc3\xb6ln"), "K\xc3\xb6ln");
  EXPECT_EQ(with_escapes("K\xf6ln\xff"), "K\\xf6ln\\xff");
}

TEST(WithEscapes, ReplacesControlCharacters) {
  EXPECT_EQ(with_escapes("a\n\x1b[31m\x7f"), "a\\x0a\\x1b[31m\\x7f");
  EXPECT_EQ(
      with_escapes("\xc2\x9b"
                   "31m\xc2\xa0"),
      "\\xc2\\x9b31m\xc2\xa0");
}

}  // namespace tandem::text_test
