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
  // File name of letters, digits and -_.+ that does not begin with a dot. Such a name
  // cannot refer to another folder and needs no escapes in a URL.
  std::string name;
  // Size in bytes, 1 or more.
  int64_t size = 0;
  // SHA-256 of the file, as 64 lower-case hex digits.
  std::string sha256;
};

/// A .tar.gz archive, and the folder inside it that contains a data set's files.
struct RemoteArchive {
  RemoteFile file;
  std::string folder;
};

/// A data set that can be downloaded.
struct RemoteSet {
  // Name with the same characters as RemoteFile::name.
  std::string name;
  // URLs of the folders that have the files, at least one. Each begins with http://,
  // https:// or file:// and ends with a slash.
  std::vector<std::string> urls;
  // Files of the data set, at least one.
  std::vector<RemoteFile> files;
  // Archive that contains the files; nullopt if the files are downloaded separately.
  std::optional<RemoteArchive> archive;
};

/// Data sets by name.
using Mirrors = std::map<std::string, RemoteSet>;

/// Reads a text in the format of mirrors.toml; `name` is the file's name in messages. A
/// data set in the text replaces the data set with the same name in `known`. If the
/// text lists no files for a data set, the files are those in `known`.
///
/// Throws ConfigError with file and line for invalid TOML, for a key that is missing,
/// unknown or of a wrong type, and for invalid values.
Mirrors parse_mirrors(
    std::string_view text, const std::string& name, const Mirrors& known = {});

/// Returns the data sets of the embedded mirrors.toml, replaced and extended by the
/// file that $TANDEM_MIRRORS names. Throws the errors of parse_mirrors().
Mirrors read_mirrors();

/// Returns a data set by name. If there is no such data set, throws ConfigError with
/// the most similar name.
const RemoteSet& find_set(const Mirrors& mirrors, const std::string& name);

}  // namespace tandem::app
