#pragma once

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tests/places.h"

namespace tandem {

/// Runs `tandem ARGUMENTS` to its end.
inline CommandResult tandem_run(
    const std::vector<std::string>& arguments, const Variables& variables = {}) {
  std::vector<std::string> command = {program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(command, variables, 800);
}

/// A program's lines where ranks print in any order.
inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// A directory of its own, removed at the end.
class Scratch {
 public:
  Scratch() : path_(make_private_directory()) {}
  ~Scratch() {
    remove_all(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

/// The value of a key in one of our JSON files, as text without quotes.
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

inline double json_number(const std::string& path, const std::string& key) {
  return std::atof(json_value(path, key).c_str());
}

}  // namespace tandem
