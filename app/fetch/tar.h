#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tandem::app {

/// A plain file in an archive.
struct TarMember {
  // As the archive has it, without "./" before it. Anything at all: never to be taken
  // as a path.
  std::string name;
  int64_t size = 0;
};

/// Reads a tar of plain files and directories, one after the other (POSIX's ustar
/// format: blocks of 512 bytes). Writes nothing.
///
/// Throws DataError that names the archive for a header whose sum is wrong, a size that
/// is none, any other kind of member (links, devices, and headers that change the next
/// member's name or size), and an archive that ends in the middle. Memory does not grow
/// with what headers claim.
class TarReader {
 public:
  /// Gives the next `size` bytes of the archive, unpacked; fewer at its end only.
  using Source = std::function<size_t(char* data, size_t size)>;

  TarReader(Source source, std::string archive);

  /// The next plain file, past what is left of the one before; nothing at the end.
  std::optional<TarMember> next();

  /// The next bytes of that file, at most `size`; 0 at its end.
  size_t read(char* data, size_t size);

 private:
  void skip(int64_t bytes);
  [[noreturn]] void fail(const std::string& what) const;

  Source source_;
  const std::string archive_;
  // Of the member at hand, and behind it up to the next block.
  int64_t left_ = 0;
  int64_t padding_ = 0;
};

}  // namespace tandem::app
