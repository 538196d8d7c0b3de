#include "app/fetch/mirrors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/config/recipe_toml.h"

namespace tandem::app {

// Text of mirrors.toml, which CMake embeds.
extern const std::string_view kMirrors;

namespace {

// Limits the recursion of the parser, which grows with the number of dots in a key.
constexpr size_t kMaxTextBytes = 1 << 16;
constexpr int64_t kMaxFileBytes = int64_t{1} << 40;
constexpr const char* kNamePattern = "[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,127}";
constexpr const char* kNameWanted = "letters, digits and -_.+ in quotes";

[[noreturn]] void refuse(const toml::node& node, const std::string& what) {
  throw ConfigError("[config] " + at_line(*node.source().path, node) + ": " + what);
}

std::vector<std::string> names_of(const Mirrors& mirrors) {
  std::vector<std::string> names;
  for (const auto& [name, set] : mirrors) {
    names.push_back(name);
  }
  return names;
}

const toml::table& table_of(
    const toml::node& node, const std::string& what,
    const std::vector<std::string>& keys) {
  if (!node.is_table()) {
    refuse(node, what + " is not a table, expected the keys " + join(keys));
  }
  for (const auto& [key, value] : *node.as_table()) {
    const std::string text(key.str());
    if (std::find(keys.begin(), keys.end(), text) == keys.end()) {
      refuse(
          value, "unknown key '" + text + "'" + did_you_mean(text, keys) + "; " + what +
                     " has the keys " + join(keys));
    }
  }
  return *node.as_table();
}

[[noreturn]] void refuse_value(
    const toml::table& table, const char* key, const std::string& wanted) {
  const auto* node = table.get(key);
  const std::string found = node == nullptr ? " is missing" : " is invalid";
  refuse(node == nullptr ? table : *node, key + found + ", expected " + wanted);
}

std::string text_at(
    const toml::table& table, const char* key, const char* pattern,
    const std::string& wanted) {
  const auto text = table[key].value_exact<std::string>();
  if (!text || !std::regex_match(*text, std::regex(pattern))) {
    refuse_value(table, key, wanted);
  }
  return *text;
}

const toml::array& list_at(const toml::table& table, const char* key) {
  const auto* list = table[key].as_array();
  if (list == nullptr || list->empty()) {
    refuse_value(table, key, "a list in brackets");
  }
  return *list;
}

RemoteFile file_of(const toml::table& table) {
  RemoteFile file;
  file.name = text_at(table, "name", kNamePattern, kNameWanted);
  file.size = table["size"].value_exact<int64_t>().value_or(0);
  if (file.size < 1 || file.size > kMaxFileBytes) {
    refuse_value(table, "size", "1 to 2^40 (bytes)");
  }
  file.sha256 = text_at(
      table, "sha256", "[0-9A-Fa-f]{64}", "64 hex digits, as sha256sum prints them");
  std::transform(
      file.sha256.begin(), file.sha256.end(), file.sha256.begin(), ::tolower);
  return file;
}

std::vector<RemoteFile> files_of(const toml::table& table) {
  std::vector<RemoteFile> files;
  std::set<std::string> names;
  for (const auto& item : list_at(table, "files")) {
    files.push_back(file_of(table_of(item, "a file", {"name", "size", "sha256"})));
    if (!names.insert(files.back().name).second) {
      refuse(item, files.back().name + " is there twice; remove one of them");
    }
  }
  return files;
}

std::string with_escapes(const std::string& path) {
  std::string escaped;
  for (const unsigned char c : path) {
    const bool is_plain = std::isalnum(c) != 0 || std::strchr("/-_.~", c) != nullptr;
    escaped +=
        is_plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return escaped;
}

std::string url_of(const toml::node& node) {
  std::string url = node.value_exact<std::string>().value_or("");
  const auto begins = [&](const char* start) { return url.rfind(start, 0) == 0; };
  if (!url.empty() && url.find("://") == std::string::npos) {
    url = "file://" + with_escapes(std::filesystem::absolute(url).string());
  }
  if (!begins("http://") && !begins("https://") && !begins("file:///")) {
    refuse(
        node, "'" + url +
                  "' is no address of a mirror, expected http://, https://, file:/// "
                  "or a folder, in quotes");
  }
  return url.back() == '/' ? url : url + "/";
}

RemoteSet set_of(
    const std::string& name, const toml::table& table, const Mirrors& known) {
  RemoteSet set;
  const auto found = known.find(name);
  const auto* archive = table.get("archive");
  if (table.contains("files") || archive != nullptr) {
    set.files = files_of(table);
  } else if (found != known.end()) {
    set = found->second;
    set.urls.clear();
  } else {
    refuse(
        table, name + " has no files and is unknown" +
                   did_you_mean(name, names_of(known)) + "; add files = [...]");
  }
  if (archive != nullptr) {
    const auto& row =
        table_of(*archive, "archive", {"name", "folder", "size", "sha256"});
    set.archive =
        RemoteArchive{file_of(row), text_at(row, "folder", kNamePattern, kNameWanted)};
  }
  set.name = name;
  for (const auto& item : list_at(table, "urls")) {
    set.urls.push_back(url_of(item));
  }
  return set;
}

}  // namespace

Mirrors parse_mirrors(
    std::string_view text, const std::string& name, const Mirrors& known) {
  Mirrors mirrors = known;
  const auto document = parse_toml(text, name);
  for (const auto& [key, node] : document) {
    const std::string set_name(key.str());
    if (!std::regex_match(set_name, std::regex(kNamePattern))) {
      refuse(
          node, "'" + set_name + "' is no name of a data set, expected " + kNameWanted);
    }
    const auto& table = table_of(node, set_name, {"urls", "files", "archive"});
    mirrors[set_name] = set_of(set_name, table, known);
  }
  return mirrors;
}

Mirrors read_mirrors() {
  const Mirrors known = parse_mirrors(kMirrors, "mirrors.toml");
  const auto path = get_env("TANDEM_MIRRORS").value_or("");
  return path.empty() ? known
                      : parse_mirrors(read_file(path, kMaxTextBytes), path, known);
}

const RemoteSet& find_set(const Mirrors& mirrors, const std::string& name) {
  const auto found = mirrors.find(name);
  if (found != mirrors.end()) {
    return found->second;
  }
  const auto names = names_of(mirrors);
  const std::string why = name == "digits"
                              ? "; tandem draws the digits itself, nothing is fetched"
                              : did_you_mean(name, names);
  throw ConfigError(
      "[fetch] cannot fetch '" + name + "'" + why + "; choose one of " + join(names));
}

}  // namespace tandem::app
