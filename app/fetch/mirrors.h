#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::app {

/// A file that can be fetched.
struct RemoteFile {
  // Letters, digits and -_.+ only, so that it names nothing outside of a folder and is
  // itself in an address.
  std::string name;
  // In bytes, 1 and more.
  int64_t size = 0;
  // 64 lower-case hex digits.
  std::string sha256;
};

/// A .tar.gz, and the folder in it that has a data set's files.
struct RemoteArchive {
  RemoteFile file;
  std::string folder;
};

/// A data set that can be fetched.
struct RemoteSet {
  // As RemoteFile::name.
  std::string name;
  // http://, https:// or file:// each; a file's name is added behind a slash. One at
  // least.
  std::vector<std::string> urls;
  // What its folder holds. One at least.
  std::vector<RemoteFile> files;
  // Where they are taken from, when they are not fetched one by one.
  std::optional<RemoteArchive> archive;
};
using Mirrors = std::vector<RemoteSet>;

/// Reads a table of the form of mirrors.toml; `name` is for the messages. What it says
/// of a set replaces what `known` does; a set without files must be known.
///
/// Throws ConfigError with file and line for what is no TOML, a key that is missing,
/// unknown or of another type, and values that cannot be.
Mirrors parse_mirrors(
    std::string_view text, const std::string& name, const Mirrors& known = {});

/// Those that the program brings (mirrors.toml), with what the file named by
/// $TANDEM_MIRRORS says instead.
Mirrors read_mirrors();

/// The set of a name. Throws ConfigError that names the nearest.
const RemoteSet& find_set(const Mirrors& mirrors, const std::string& name);

}  // namespace tandem::app
