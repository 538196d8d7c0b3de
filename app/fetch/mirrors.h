#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::app {

/// A file that can be downloaded.
struct RemoteFile {
  // Letters, digits and -_.+ only, and no dot at its beginning. Such a name cannot lead
  // out of a folder and needs no escapes in a URL.
  std::string name;
  // In bytes, 1 or more.
  int64_t size = 0;
  // 64 lower-case hex digits.
  std::string sha256;
};

/// A .tar.gz, and the folder in it with a data set's files.
struct RemoteArchive {
  RemoteFile file;
  std::string folder;
};

/// A data set that can be downloaded.
struct RemoteSet {
  // The same characters as in RemoteFile::name.
  std::string name;
  // One or more URLs with http://, https:// or file://, each with a slash at its end.
  std::vector<std::string> urls;
  // One or more.
  std::vector<RemoteFile> files;
  // The archive that contains the files; empty if each of them is downloaded.
  std::optional<RemoteArchive> archive;
};

/// Data sets by name.
using Mirrors = std::map<std::string, RemoteSet>;

/// Reads a text in the format of mirrors.toml; `name` is the file's name in messages.
/// Sets in the text override those in `known`. A set without files must be in `known`.
///
/// Throws ConfigError with file and line for invalid TOML, for a key that is missing,
/// unknown or of a wrong type, and for invalid values.
Mirrors parse_mirrors(
    std::string_view text, const std::string& name, const Mirrors& known = {});

/// The program's own mirrors.toml, with overrides from the file in $TANDEM_MIRRORS.
Mirrors read_mirrors();

/// Returns a set by name. Throws ConfigError with the nearest name if there is none.
const RemoteSet& find_set(const Mirrors& mirrors, const std::string& name);

}  // namespace tandem::app
