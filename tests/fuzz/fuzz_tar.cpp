// Tar: what is taken as a file is the bytes behind a header that says so.

#include <cstdlib>

#include "app/fetch/tar.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tandem::app::TarMember;
using tandem::app::TarReader;
using tandem::fuzz::expect;

// The header as the format's description has it, not by the library.
void expect_header_of(const std::string& header, const TarMember& member) {
  long sum = 8 * ' ';
  for (size_t i = 0; i < header.size(); ++i) {
    sum += i < 148 || i >= 156 ? static_cast<unsigned char>(header[i]) : 0;
  }
  expect(
      std::strtol(header.substr(148, 8).c_str(), nullptr, 8) == sum,
      "the sum is right");
  expect(
      std::strtol(header.substr(124, 12).c_str(), nullptr, 8) == member.size,
      "the size is the header's");
  const std::string name = header.substr(0, 100).c_str();
  const std::string end = name.size() <= member.name.size()
                              ? member.name.substr(member.name.size() - name.size())
                              : member.name;
  expect(
      name.size() >= end.size() && name.substr(name.size() - end.size()) == end,
      "the name is the header's");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  size_t at = 0;
  const auto source = [&](char* to, size_t wanted) {
    const size_t got = bytes.copy(to, wanted, at);
    at += got;
    return got;
  };
  tandem::fuzz::accepts([&] {
    TarReader tar(source, "input");
    while (const auto member = tar.next()) {
      expect(at >= 512 && at % 512 == 0, "a file begins behind a block");
      expect_header_of(bytes.substr(at - 512, 512), *member);
      const size_t first = at;
      std::string content;
      char piece[100];
      while (const size_t got = tar.read(piece, sizeof(piece))) {
        content.append(piece, got);
      }
      expect(
          content.size() == static_cast<size_t>(member->size) &&
              bytes.compare(first, content.size(), content) == 0,
          "the file is what follows its header");
    }
  });
  return 0;
}
