#pragma once

#include <zlib.h>

#include <cstdio>
#include <string>

namespace tandem::app {

/// A member as the format's description has it, written down without the library.
struct TarEntry {
  std::string name;
  std::string bytes;
  char kind = '0';
  // POSIX's, or "" for what was before.
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
  std::string prefix = {};
  // What the header says of the size, if not the truth.
  std::string size = {};
};

inline std::string octal(size_t number, int digits) {
  char text[24];
  std::snprintf(text, sizeof(text), "%0*zo", digits, number);
  return text;
}

/// A header's sum, of bytes with eight spaces for the sum.
inline std::string with_sum(std::string header) {
  header.replace(148, 8, 8, ' ');
  size_t sum = 0;
  for (const unsigned char c : header) {
    sum += c;
  }
  return header.replace(148, 8, octal(sum, 6) + std::string("\0 ", 2));
}

inline std::string tar_member(const TarEntry& entry) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, entry.name);
  put(100, octal(0644, 7));
  put(124, entry.size.empty() ? octal(entry.bytes.size(), 11) : entry.size);
  put(156, std::string(1, entry.kind));
  put(257, entry.magic);
  put(345, entry.prefix);
  const size_t padding = (512 - entry.bytes.size() % 512) % 512;
  return with_sum(header) + entry.bytes + std::string(padding, '\0');
}

inline std::string tar_end() {
  return std::string(1024, '\0');
}

inline std::string gzipped(const std::string& bytes) {
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

}  // namespace tandem::app
