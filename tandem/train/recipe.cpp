#include <toml++/toml.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/train/config.h"

namespace tandem {

namespace {

constexpr int64_t kFormatVersion = 1;

std::string at_line(const std::string& path, const toml::node& node) {
  return path + ":" + std::to_string(node.source().begin.line);
}

toml::table parse(const std::string& path) {
  const std::string content = read_file(path);
  try {
    return toml::parse(content, path);
  } catch (const toml::parse_error& error) {
    throw ConfigError(
        "[config] " + path + ":" + std::to_string(error.source().begin.line) + ": " +
        std::string(error.description()));
  }
}

std::string text_of(const toml::node& node) {
  std::ostringstream text;
  if (const auto value = node.value<std::string>(); node.is_string()) {
    return *value;
  }
  node.visit([&](const auto& typed) { text << typed; });
  return text.str();
}

void check_type(
    const ConfigField& field, const toml::node& node, const std::string& where) {
  const bool text = std::holds_alternative<std::string RunConfig::*>(field.member);
  // nproc takes a number or "auto".
  const bool number_as_text =
      text && std::string(field.name) == "nproc" && node.is_integer();
  if (text != node.is_string() && !number_as_text) {
    throw ConfigError(
        "[config] " + where + ": " + field.name + " = " + text_of(node) +
        ", expected " + (text ? "a text in quotes" : "a value without quotes"));
  }
}

void check_version(const toml::node& node, const std::string& where) {
  if (const auto version = node.value<int64_t>(); version != kFormatVersion) {
    throw ConfigError(
        "[config] " + where + ": format_version is " + text_of(node) +
        ", this program reads " + std::to_string(kFormatVersion) + "; update tandem");
  }
}

void apply(RunConfig& config, const std::string& path, std::set<std::string>& seen);

void apply_base(
    RunConfig& config, const toml::node& node, const std::string& path,
    std::set<std::string>& seen) {
  const auto folder = std::filesystem::path(path).parent_path();
  const std::string base = (folder / node.value_or(std::string())).string();
  if (!node.is_string() || seen.count(base) > 0) {
    throw ConfigError(
        "[config] " + at_line(path, node) + ": base must name another recipe, not '" +
        text_of(node) + "'");
  }
  apply(config, base, seen);
}

void apply(RunConfig& config, const std::string& path, std::set<std::string>& seen) {
  seen.insert(path);
  const auto table = parse(path);
  if (const auto* base = table.get("base")) {
    apply_base(config, *base, path, seen);
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string where = at_line(path, node);
    if (name == "format_version") {
      check_version(node, where);
    } else if (name != "base" && name != "document") {
      const auto& field = find_field(name, where);
      check_type(field, node, where);
      set_field(config, field, text_of(node), where);
    }
  }
}

}  // namespace

void read_recipe(RunConfig& config, const std::string& path) {
  std::set<std::string> seen;
  apply(config, path, seen);
}

}  // namespace tandem
