#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/config/fields.h"
#include "tandem/config/recipe_toml.h"

namespace tandem {

namespace {

constexpr int64_t kFormatVersion = 1;

std::string text_of(const toml::node& node) {
  // toml++ 3.3 would cast infinity to a length to print an array, which is undefined.
  if (node.is_array() || node.is_table()) {
    return node.is_array() ? "an array" : "a table";
  }
  std::ostringstream text;
  if (const auto value = node.value_exact<std::string>()) {
    return *value;
  }
  if (const auto value = node.value_exact<int64_t>()) {
    return std::to_string(*value);  // 0xff is 255
  }
  node.visit([&](const auto& typed) { text << typed; });
  return text.str();
}

// Returns the value of a field: for a field of several numbers, the numbers of an array
// with commas between them.
std::string value_of(const Field& field, const toml::node& node) {
  const auto* array = node.as_array();
  if (field.type != Field::Type::numbers || array == nullptr) {
    return text_of(node);
  }
  std::vector<std::string> texts;
  for (const auto& entry : *array) {
    if (!entry.is_number()) {
      return text_of(node);
    }
    texts.push_back(text_of(entry));
  }
  return join(texts, ",");
}

void check_type(const Field& field, const toml::node& node, const std::string& where) {
  // A field that accepts numbers and words accepts both with and without quotes.
  const bool either =
      field.type == Field::Type::numbers || (field.is_number() && !field.words.empty());
  if (field.is_text() != node.is_string() && !either) {
    throw ConfigError(
        "[config] " + where + ": " + field.name + " = " + text_of(node) +
        ", expected " +
        (field.is_text() ? "a string in quotes" : "a value without quotes"));
  }
}

void check_version(const toml::node& node, const std::string& where) {
  // value_exact(), because value() would cast 1e300 to int64, which is undefined.
  if (const auto version = node.value_exact<int64_t>(); version != kFormatVersion) {
    throw ConfigError(
        "[config] " + where + ": format_version is " + text_of(node) + ", expected " +
        std::to_string(kFormatVersion) + "; update tandem");
  }
}

// Recipes that were renamed. Their old names remain valid.
struct RenamedRecipe {
  const char* before;
  const char* now;
};
constexpr RenamedRecipe kRenamedRecipes[] = {
    {"000-gloo", "gloo-machines"},
    {"000-single", "single-process"},
    {"001-hogwild", "hogwild"},
    {"001-mpi-averaging", "local-sgd-mpi"},
    {"001-mpi-averaging-logits", "local-sgd-mpi-logits"},
    {"001-scaling", "scaling"},
    {"002-data-parallel", "data-parallel-module"},
    {"002-ddp", "ddp-linear"},
    {"002-hybrid", "hybrid"},
    {"002-model-parallel", "model-parallel"},
    {"002-pipeline", "pipeline-1f1b"},
    {"002-pipeline-gpipe", "pipeline-gpipe"},
    {"002-rpc", "parameter-server"},
    {"003-buffers", "batch-norm-buffers"},
    {"003-buffers-sync", "sync-batch-norm"},
    {"003-ddp", "ddp"},
    {"003-own-ddp", "ddp-manual"},
    {"003-own-ddp-flat", "ddp-manual-flat"},
    {"003-own-ddp-overlap", "ddp-manual-overlap"},
    {"003-single", "single-net"},
    {"004-amp", "amp-fp16"},
    {"004-nccl-amp", "amp-nccl"},
    {"004-nodes-gpus", "nodes-gpus"},
    {"004-single", "single-convnet"},
};

// Returns the same text for "a.toml", "./a.toml" and a link to it.
std::string identity(const std::string& path) {
  std::error_code ignored;
  const auto real = std::filesystem::canonical(path, ignored).string();
  return real.empty() ? path : real;
}

void apply_file(
    RunConfig& config, const std::string& path, std::set<std::string>& seen);

void apply_base(
    RunConfig& config, const toml::node& node, const std::string& path,
    std::set<std::string>& seen) {
  const std::string base = named_recipe(path, node.value_or(std::string()));
  if (!node.is_string() || seen.count(identity(base)) > 0) {
    throw ConfigError(
        "[config] " + at_line(path, node) + ": base is '" + text_of(node) +
        "', expected another recipe; change it");
  }
  apply_file(config, base, seen);
}

// Applies the table [launch], which has one key, such as with = "mpirun".
void apply_launch(RunConfig& config, const toml::node& node, const std::string& path) {
  const auto* table = node.as_table();
  if (table == nullptr) {
    throw ConfigError(
        "[config] " + at_line(path, node) + ": launch is " + text_of(node) +
        ", expected a table; write [launch] and with = \"mpirun\" below it");
  }
  for (const auto& [key, value] : *table) {
    const std::string where = at_line(path, value);
    if (key.str() != "with") {
      throw ConfigError(
          "[config] " + where + ": unknown key '" + std::string(key.str()) +
          "' in [launch]; use with = \"tandem\" or \"mpirun\"");
    }
    const auto& field = find_field("launcher", where);
    check_type(field, value, where);
    set_field(config, field, text_of(value), where);
  }
}

// Returns whether a key is not a setting, but is valid because other functions read it.
// "document" is the old name of "tutorial".
bool is_no_setting(const std::string& name) {
  return name == "base" || name == "description" || name == "document" ||
         name == "tutorial" || name == "without_gpu";
}

// Throws ConfigError for a table that is not a setting. Recipes of other tools have
// settings in tables.
void refuse_section(
    const std::string& name, const toml::node& node, const std::string& where) {
  const auto& fields = config_fields();
  const bool known = std::any_of(fields.begin(), fields.end(), [&](const auto& field) {
    return name == field.name;
  });
  if (node.is_table() && !known) {
    throw ConfigError(
        "[config] " + where + ": unknown table [" + name +
        "], but settings need no table; delete the line [" + name + "]");
  }
}

void apply(
    RunConfig& config, const toml::table& table, const std::string& path,
    std::set<std::string>& seen) {
  seen.insert(identity(path));
  if (const auto* base = table.get("base")) {
    apply_base(config, *base, path, seen);
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string where = at_line(path, node);
    if (name == "scaling") {
      throw ConfigError(
          "[config] " + where +
          ": unknown table [scaling] for a run; use tandem scaling " + path);
    }
    if (name == "format_version") {
      check_version(node, where);
    } else if (name == "launch") {
      apply_launch(config, node, path);
    } else if (!is_no_setting(name)) {
      refuse_section(name, node, where);
      const auto& field = find_field(name, where);
      if (name != field.name && table.contains(field.name)) {
        throw ConfigError(
            "[config] " + where + ": " + name + " is the old name of " + field.name +
            ", which is set too; leave out " + name);
      }
      check_type(field, node, where);
      set_field(config, field, value_of(field, node), where);
      if (field.name == "model" && config.model.trust != ScriptTrust::all) {
        config.model.trust = ScriptTrust::none;
      }
    }
  }
}

void apply_file(
    RunConfig& config, const std::string& path, std::set<std::string>& seen) {
  apply(config, parse_recipe(path), path, seen);
}

// Returns advice if the line has a text without quotes, such as: model = net
std::string quotes_missing_in(const std::string& content, uint32_t line) {
  // Limits the length of a line, because std::regex is recursive and could exhaust the
  // stack.
  constexpr size_t kLongest = 200;
  static const std::regex kUnquoted(R"(\s*(\w+)\s*=\s*([A-Za-z][^\s"'#]*)\s*(#.*)?)");
  const auto lines = split(content, '\n');
  std::smatch parts;
  if (line < 1 || line > lines.size() || lines[line - 1].size() > kLongest ||
      !std::regex_match(lines[line - 1], parts, kUnquoted)) {
    return "";
  }
  const auto& fields = config_fields();
  const bool is_text = std::any_of(
      fields.begin(), fields.end(),
      [&](const auto& field) { return parts[1] == field.name && field.is_text(); });
  return is_text ? "; write the text in quotes: " + parts[1].str() + " = \"" +
                       parts[2].str() + "\""
                 : "";
}

}  // namespace

std::string at_line(const std::string& path, const toml::node& node) {
  return path + ":" + std::to_string(node.source().begin.line);
}

toml::table parse_toml(std::string_view text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    throw ConfigError(
        "[config] " + name + ":" + std::to_string(line) + ": " +
        std::string(error.description()) + quotes_missing_in(std::string(text), line));
  }
}

toml::table parse_recipe(const std::string& path) {
  return parse_toml(read_file(path, kMostRecipeBytes), path);
}

std::string current_recipe(const std::string& path) {
  const std::filesystem::path file(path);
  if (file_exists(path) || file.extension() != ".toml") {
    return path;
  }
  for (const auto& recipe : kRenamedRecipes) {
    auto renamed = file;
    renamed.replace_filename(std::string(recipe.now) + ".toml");
    if (file.stem() == recipe.before && file_exists(renamed.string())) {
      return renamed.string();
    }
  }
  return path;
}

std::string named_recipe(const std::string& path, const std::string& name) {
  return current_recipe((std::filesystem::path(path).parent_path() / name).string());
}

void read_recipe(RunConfig& config, const std::string& path) {
  std::set<std::string> seen;
  apply_file(config, current_recipe(path), seen);
}

void read_recipe_text(
    RunConfig& config, const std::string& text, const std::string& path) {
  std::set<std::string> seen;
  apply(config, parse_toml(text, path), path, seen);
}

}  // namespace tandem
