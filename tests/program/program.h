#pragma once

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tandem/base/process.h"
#include "tests/lines.h"
#include "tests/places.h"
#include "tests/results.h"
#include "tests/scratch.h"

namespace tandem {

using Arguments = std::vector<std::string>;

inline Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Runs the program tandem and waits for its end, for at most 800 s.
inline CommandResult tandem_run(
    const Arguments& arguments, const Variables& variables = {}) {
  return run_command(with({program()}, arguments), variables, 800);
}

/// Runs the program tandem, which must succeed, and returns its result (see checked()).
inline CommandResult run_ok(
    const Arguments& arguments, const Variables& variables = {},
    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return checked(tandem_run(arguments, variables), file, line);
}

/// Returns the path of a recipe in the repository.
inline std::string recipe_file(const std::string& name) {
  return source_dir() + "/recipes/" + name + ".toml";
}

/// Returns the lines with `mark`, from the end of `mark` on.
inline std::vector<std::string> lines_after(
    const std::string& text, const std::string& mark) {
  std::vector<std::string> found;
  for (const auto& line : lines_with(text, mark)) {
    found.push_back(line.substr(line.find(mark) + mark.size()));
  }
  return found;
}

/// Returns the value of a key in a JSON file of tandem, as text without quotes. Returns
/// "" if the file does not have the key.
inline std::string json_value(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("\"" + key + "\": ");
    if (at != std::string::npos) {
      std::string value = line.substr(at + key.size() + 4);
      while (!value.empty() && (value.back() == ',' || value.back() == '"')) {
        value.pop_back();
      }
      return value.substr(!value.empty() && value.front() == '"' ? 1 : 0);
    }
  }
  return "";
}

/// Returns the SHA-256 of the final parameters of the run with the directory `out`.
inline std::string hash_of(const std::string& out) {
  return json_value(out + "/summary.json", "parameters_sha256");
}

inline double json_number(const std::string& path, const std::string& key) {
  return std::atof(json_value(path, key).c_str());
}

}  // namespace tandem
