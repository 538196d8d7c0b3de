#pragma once

#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/base/store/socket.h"
#include "tests/lines.h"
#include "tests/named.h"
#include "tests/places.h"
#include "tests/results.h"
#include "tests/scratch.h"

namespace tandem {

using Arguments = std::vector<std::string>;

/// Returns the arguments of all lists.
inline Arguments with(
    Arguments first, const Arguments& second, const Arguments& third = {},
    const Arguments& fourth = {}) {
  for (const auto* more : {&second, &third, &fourth}) {
    first.insert(first.end(), more->begin(), more->end());
  }
  return first;
}

/// A way of training, in tests of several ways.
struct Way {
  const char* name;
  Arguments flags;
};

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

/// Calls `run` with 0 to `count` - 1 at the same time, and returns the results.
template <typename Run>
std::vector<CommandResult> run_together(int count, const Run& run) {
  std::vector<std::future<CommandResult>> runs;
  for (int i = 0; i < count; ++i) {
    runs.push_back(std::async(std::launch::async, [&run, i] { return run(i); }));
  }
  std::vector<CommandResult> results;
  for (auto& each : runs) {
    results.push_back(each.get());
  }
  return results;
}

/// Returns a port of 127.0.0.1 on which no program listens.
inline std::string unused_port() {
  const auto address = listen_at("tcp:127.0.0.1:0").address;
  return address.substr(address.rfind(':') + 1);
}

/// Returns the variables of a rank that was started without a launcher.
inline Variables variables_of_rank(
    int rank, int world_size, const std::string& port,
    const std::string& host = "127.0.0.1") {
  return {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(world_size)},
      {"MASTER_ADDR", host},
      {"MASTER_PORT", port}};
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
/// "" if there is no such file or key.
inline std::string json_value(const std::string& path, const std::string& key) {
  const auto file = file_exists(path) ? nlohmann::json::parse(read_file(path))
                                      : nlohmann::json::object();
  const auto value = file.value(key, nlohmann::json(""));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

inline double json_number(const std::string& path, const std::string& key) {
  return std::atof(json_value(path, key).c_str());
}

/// Returns the SHA-256 of the final parameters of the run with the directory `out`.
inline std::string hash_of(const std::string& out) {
  return json_value(out + "/summary.json", "parameters_sha256");
}

/// Returns the lines of metrics.jsonl of the run with the directory `out`, each of
/// which must be complete.
inline std::vector<nlohmann::json> metrics_of(const std::string& out) {
  std::vector<nlohmann::json> found;
  for (const auto& line : split(read_file(out + "/metrics.jsonl"), '\n')) {
    found.push_back(nlohmann::json::parse(line));
  }
  return found;
}

/// Returns the numbers of a key in those lines of metrics_of() that have the kind.
inline std::vector<double> numbers_of(
    const std::string& out, const std::string& kind, const std::string& key) {
  std::vector<double> numbers;
  for (const auto& line : metrics_of(out)) {
    if (line["kind"] == kind && line.contains(key)) {
      numbers.push_back(line[key]);
    }
  }
  return numbers;
}

}  // namespace tandem

/// Skips the test if the build has no MPI.
#define TANDEM_NEEDS_MPI()                                                       \
  do {                                                                           \
    if (TANDEM_HAS_MPI == 0) {                                                   \
      GTEST_SKIP() << "this build has no MPI; scripts/setup, then a new build: " \
                      "scripts/test -R Mpi";                                     \
    }                                                                            \
  } while (false)
