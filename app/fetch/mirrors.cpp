#include "app/fetch/mirrors.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/config/recipe_toml.h"

namespace tandem::app {

// mirrors.toml, which CMake embeds.
extern const std::string_view kMirrors;

namespace {

// As recipes: the parser's recursion grows with the dots in a key.
constexpr size_t kMostBytes = 1 << 16;
constexpr int64_t kMostFileBytes = int64_t{1} << 40;
constexpr size_t kMostNameBytes = 128;
constexpr size_t kSha256Digits = 64;

[[noreturn]] void refuse(
    const std::string& path, const toml::node& node, const std::string& what) {
  throw ConfigError("[config] " + at_line(path, node) + ": " + what);
}

// A table of a mirrors file: what it is called in messages, and where it is from.
struct Part {
  const std::string& path;
  const toml::table& table;
  std::string name;

  const toml::node* find(const char* key) const {
    return table.get(key);
  }
  const toml::node& need(const char* key, const std::string& wanted) const {
    const auto* node = find(key);
    if (node == nullptr) {
      refuse(path, table, name + " has no " + key + "; add " + key + " = " + wanted);
    }
    return *node;
  }
  void check_keys(const std::vector<std::string>& known) const {
    for (const auto& [key, node] : table) {
      const std::string text(key.str());
      if (std::find(known.begin(), known.end(), text) == known.end()) {
        refuse(
            path, node,
            "unknown key '" + text + "'" + did_you_mean(text, known) + "; " + name +
                " takes " + join(known));
      }
    }
  }
};

bool is_plain_name(const std::string& name) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '+';
  };
  return !name.empty() && name.size() <= kMostNameBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), is_plain);
}

void check_name(
    const std::string& path, const toml::node& node, const std::string& name) {
  if (!is_plain_name(name)) {
    refuse(
        path, node,
        "'" + name + "' cannot be a name here; use letters, digits and -_.+ only");
  }
}

std::string text_of(const Part& part, const char* key, const std::string& wanted) {
  const auto& node = part.need(key, wanted);
  if (!node.is_string()) {
    refuse(part.path, node, std::string(key) + " must be a text, such as " + wanted);
  }
  return *node.value_exact<std::string>();
}

std::string name_of(const Part& part, const char* key) {
  auto name = text_of(part, key, "\"train-images-idx3-ubyte.gz\"");
  check_name(part.path, *part.find(key), name);
  return name;
}

std::string sha256_of(const Part& part) {
  auto digits = text_of(part, "sha256", "\"440fcabf...\" (sha256sum prints it)");
  std::transform(digits.begin(), digits.end(), digits.begin(), ::tolower);
  if (digits.size() != kSha256Digits ||
      digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuse(
        part.path, *part.find("sha256"),
        "sha256 is not one of 64 hex digits; take what sha256sum prints");
  }
  return digits;
}

int64_t size_of(const Part& part) {
  const auto& node = part.need("size", "9912422 (in bytes)");
  const auto size = node.value_exact<int64_t>().value_or(0);
  if (size < 1 || size > kMostFileBytes) {
    refuse(part.path, node, "size must be a whole number of bytes, 1 to 2^40");
  }
  return size;
}

const toml::table& table_of(
    const std::string& path, const toml::node& node, const std::string& what) {
  if (node.as_table() == nullptr) {
    refuse(path, node, what + " must be a table of keys in braces");
  }
  return *node.as_table();
}

RemoteFile file_of(const Part& part) {
  return {name_of(part, "name"), size_of(part), sha256_of(part)};
}

const toml::array& list_of(const Part& part, const char* key) {
  const auto& node = part.need(key, "[...]");
  if (node.as_array() == nullptr || node.as_array()->empty()) {
    refuse(part.path, node, std::string(key) + " must be a list in brackets");
  }
  return *node.as_array();
}

std::vector<RemoteFile> files_of(const Part& part) {
  std::vector<RemoteFile> files;
  for (const auto& item : list_of(part, "files")) {
    const Part row{
        part.path, table_of(part.path, item, "a row of files"), "a row of files"};
    row.check_keys({"name", "size", "sha256"});
    const RemoteFile file = file_of(row);
    for (const auto& other : files) {
      if (other.name == file.name) {
        refuse(part.path, item, file.name + " is there twice; leave one out");
      }
    }
    files.push_back(file);
  }
  return files;
}

std::optional<RemoteArchive> archive_of(const Part& part) {
  const auto* node = part.find("archive");
  if (node == nullptr) {
    return std::nullopt;
  }
  const Part row{part.path, table_of(part.path, *node, "archive"), "archive"};
  row.check_keys({"name", "folder", "size", "sha256"});
  return RemoteArchive{file_of(row), name_of(row, "folder")};
}

// As addresses have it.
std::string with_escapes(const std::string& path) {
  const char* digits = "0123456789ABCDEF";
  std::string escaped;
  for (const unsigned char c : path) {
    if (std::isalnum(c) != 0 || std::string_view("/-_.~").find(static_cast<char>(c)) !=
                                    std::string_view::npos) {
      escaped += static_cast<char>(c);
    } else {
      escaped += {'%', digits[c >> 4], digits[c & 15]};
    }
  }
  return escaped;
}

std::string url_of(const std::string& path, const toml::node& node) {
  const auto text = node.value_exact<std::string>().value_or("");
  if (text.empty()) {
    refuse(path, node, "urls must be addresses or folders in quotes");
  }
  std::string url = text;
  if (text.find("://") == std::string::npos) {
    url = "file://" + with_escapes(std::filesystem::absolute(text).string());
  } else if (
      text.rfind("http://", 0) != 0 && text.rfind("https://", 0) != 0 &&
      text.rfind("file:///", 0) != 0) {
    refuse(
        path, node,
        "'" + text +
            "' cannot be fetched from; use http://, https://, file:/// or a folder");
  }
  return url.back() == '/' ? url : url + "/";
}

const RemoteSet& known_set(const Part& part, const Mirrors& known) {
  std::vector<std::string> names;
  for (const auto& set : known) {
    if (set.name == part.name) {
      return set;
    }
    names.push_back(set.name);
  }
  refuse(
      part.path, part.table,
      part.name + " has no files, and is none of the data sets that tandem knows" +
          did_you_mean(part.name, names) + "; add files = [...]");
}

RemoteSet set_of(const Part& part, const Mirrors& known) {
  part.check_keys({"urls", "files", "archive"});
  RemoteSet set;
  if (part.find("files") == nullptr && part.find("archive") == nullptr) {
    set = known_set(part, known);
    set.urls.clear();
  } else {
    set.name = part.name;
    set.files = files_of(part);
    set.archive = archive_of(part);
  }
  for (const auto& item : list_of(part, "urls")) {
    set.urls.push_back(url_of(part.path, item));
  }
  return set;
}

}  // namespace

Mirrors parse_mirrors(
    std::string_view text, const std::string& name, const Mirrors& known) {
  Mirrors mirrors = known;
  for (const auto& [key, node] : parse_toml(text, name)) {
    const std::string set_name(key.str());
    check_name(name, node, set_name);
    const Part part{name, table_of(name, node, set_name), set_name};
    const RemoteSet set = set_of(part, known);
    const auto same = std::find_if(
        mirrors.begin(), mirrors.end(),
        [&](const RemoteSet& one) { return one.name == set_name; });
    if (same == mirrors.end()) {
      mirrors.push_back(set);
    } else {
      *same = set;
    }
  }
  return mirrors;
}

Mirrors read_mirrors() {
  const Mirrors known = parse_mirrors(kMirrors, "mirrors.toml");
  const auto own = get_env("TANDEM_MIRRORS").value_or("");
  return own.empty() ? known : parse_mirrors(read_file(own, kMostBytes), own, known);
}

const RemoteSet& find_set(const Mirrors& mirrors, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& set : mirrors) {
    if (set.name == name) {
      return set;
    }
    names.push_back(set.name);
  }
  const std::string why = name == "digits"
                              ? "; tandem draws the digits itself, nothing is fetched"
                              : did_you_mean(name, names);
  throw ConfigError(
      "[fetch] cannot fetch '" + name + "'" + why + "; choose one of " + join(names));
}

}  // namespace tandem::app
