#include "tandem/checkpoint/network_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/sha256.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/config/fields.h"
#include "tandem/launch/restarts.h"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr const char* kCopies[] = {"network.pt2", "network.pt"};
// Number of directories that can contain the copy of a checkpoint's run: step-N,
// checkpoints and RUN.
constexpr int kLevels = 3;

// Returns the path of the copy in a directory, "" if there is none.
std::string copy_in(const std::string& directory) {
  for (const char* name : kCopies) {
    auto path = directory + "/" + name;
    if (file_exists(path)) {
      return path;
    }
  }
  return "";
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Returns whether load_model_file() (model/model_file.h) can run code of a file.
bool is_script_path(const std::string& path) {
  return fs::path(path).extension() == ".pt";
}

[[noreturn]] void refuse_script(const std::string& path) {
  throw ConfigError(fmt::format(
      "[model] '{0}' is TorchScript, which runs code, expected a file that this "
      "command "
      "names; if you trust it, add --model {0} or --trust",
      path));
}

void copy_file(const std::string& from, const std::string& to) {
  std::ifstream source(from, std::ios::binary);
  std::vector<char> chunk(size_t{1} << 20);
  replace_file(to, [&](int fd) {
    while (source) {
      source.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
      write_all(fd, chunk.data(), static_cast<size_t>(source.gcount()), to);
    }
    if (!source.eof()) {
      fail_on_file("read", from);
    }
  });
}

}  // namespace

std::string network_file(const RunConfig& config) {
  const std::string& file = config.model.file;
  const ScriptTrust trust = config.model.trust;
  const EarlierSettings earlier = read_earlier_settings(config);
  if (!earlier.text.empty()) {
    const auto& model = find_field("model", "");
    const auto copy = copy_in(earlier.run);
    if (!copy.empty() && value_in(earlier.text, model) == to_toml(config, model)) {
      // This run made the copy before it was started again.
      if (!is_script_path(copy) || trust == ScriptTrust::all || is_started_again()) {
        return copy;
      }
      if (trust == ScriptTrust::none || !is_file(file)) {
        refuse_script(copy);
      }
    }
  }
  if (!is_file(file)) {
    throw DataError(
        earlier.text.empty()
            ? fmt::format(
                  "[model] model is '{}', which is not a file; check the path of "
                  "--model",
                  file)
            : fmt::format(
                  "[model] model is '{}', which is not a file, and '{}' has no copy of "
                  "it; name the file with --model FILE",
                  file, earlier.run));
  }
  if (is_script_path(file) && trust == ScriptTrust::none) {
    refuse_script(file);
  }
  return file;
}

void keep_network_file(const RunConfig& config, const std::string& run) {
  const auto file = network_file(config);
  const auto copy = run + "/network" + fs::path(file).extension().string();
  std::error_code ignored;
  if (fs::equivalent(file, copy, ignored)) {
    return;
  }
  copy_file(file, copy);
  for (const char* name : kCopies) {
    if (const auto other = run + "/" + name; other != copy) {
      remove_all(other);
    }
  }
}

std::string network_file_of(
    const CheckpointNetwork& network, const std::string& asked, bool trusts_scripts) {
  std::vector<std::string> candidates = {asked};
  if (asked.empty()) {
    candidates.clear();
    fs::path folder = fs::absolute(network.checkpoint).lexically_normal();
    for (int level = 0; level < kLevels; ++level) {
      folder = folder.parent_path();
      candidates.push_back(copy_in(folder.string()));
    }
    candidates.push_back(network.file);
  }
  std::string other;
  for (const auto& path : candidates) {
    if (!is_file(path)) {
      continue;
    }
    if (network.sha256.empty() || sha256_of_file(path) == network.sha256) {
      if (is_script_path(path) && path != asked && !trusts_scripts) {
        refuse_script(path);
      }
      return path;
    }
    // Names the run's copy rather than the file of the training, which comes last.
    if (other.empty()) {
      other = path;
    }
  }
  if (!other.empty()) {
    throw ConfigError(fmt::format(
        "[model] '{}' is another file than the network of '{}', expected the file "
        "with SHA-256 {}; name it with --model FILE",
        other, network.checkpoint, network.sha256));
  }
  throw DataError(fmt::format(
      "[model] the network of '{}' is missing: '{}' is not a file; name it with "
      "--model "
      "FILE",
      network.checkpoint, asked.empty() ? network.file : asked));
}

}  // namespace tandem
