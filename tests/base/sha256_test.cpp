#include "tandem/base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/base/test_tools.h"

namespace tandem::sha256_test {

std::string digest(const std::string& text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex_digest();
}

// Vectors of FIPS 180-4.
TEST(Sha256, MatchesKnownVectors) {
  EXPECT_EQ(
      digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(
      digest("abc"),
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      digest(std::string(1'000'000, 'a')),
      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowBytesAreSplit) {
  std::string text(1000, '\0');
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(i * 7);
  }
  for (const size_t piece : {1, 63, 64, 65, 999}) {
    Sha256 sha;
    for (size_t at = 0; at < text.size(); at += piece) {
      sha.update(text.data() + at, std::min(piece, text.size() - at));
    }
    EXPECT_EQ(sha.hex_digest(), digest(text)) << piece;
  }
}

TEST(Sha256, HashesFiles) {
  const Scratch folder;
  for (const size_t size : {0, 1, 1 << 20, (1 << 20) + 1}) {
    const std::string bytes(size, 'b');
    replace_file(folder / "file", bytes);
    EXPECT_EQ(sha256_of_file(folder / "file"), digest(bytes)) << size;
  }
  for (const auto& unreadable : {folder / "missing", folder.path()}) {
    expect_error<DataError>(
        [&] { sha256_of_file(unreadable); }, {"cannot read '" + unreadable + "': "});
  }
}

}  // namespace tandem::sha256_test
