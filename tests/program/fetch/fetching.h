#pragma once

// Common parts of the tests of `tandem data fetch`: small data sets, mirrors, and calls
// of the program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tandem/base/sha256.h"
#include "tests/program/fetch/http_server.h"
#include "tests/program/program.h"

namespace tandem {

/// Returns the content of a test file: pseudo-random bytes that depend on `seed`.
inline std::string file_bytes(size_t size, unsigned seed = 1) {
  std::string bytes;
  uint64_t state = seed * 2654435761U + 1;
  while (bytes.size() < size) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    bytes += static_cast<char>(state >> 56);
  }
  return bytes;
}

/// Contents of files by file name.
using Files = std::map<std::string, std::string>;

/// Returns the entry of a data file in a mirrors file: "{name = ..., size = ..., sha256
/// = ...}".
inline std::string row_of(const std::string& name, const std::string& bytes) {
  return "{name = \"" + name + "\", size = " + std::to_string(bytes.size()) +
         ", sha256 = \"" + sha256_hex(bytes.data(), bytes.size()) + "\"}";
}

/// Returns the table of a data set in a mirrors file. `more` has further lines of the
/// table.
inline std::string set_of(
    const std::string& name, const std::vector<std::string>& urls, const Files& files,
    const std::string& more = "") {
  std::string text = "[" + name + "]\nurls = [";
  for (const auto& url : urls) {
    text += "\"" + url + "\", ";
  }
  text += "]\nfiles = [";
  for (const auto& [file, bytes] : files) {
    text += row_of(file, bytes) + ", ";
  }
  return text + "]\n" + more;
}

/// Returns the function of a web server that answers requests for `files`, and other
/// requests with code 404.
inline HttpServer::Answer server_of(const Files& files) {
  return [files](const HttpRequest& request) {
    const auto found = files.find(request.path.substr(1));
    return found == files.end() ? HttpAnswer{404, "no such file"}
                                : answer_with(found->second, request);
  };
}

class FetchTest : public testing::Test {
 protected:
  void SetUp() override {
    if (TANDEM_HAS_FETCH == 0) {
      GTEST_SKIP() << "this build has no libcurl or no libarchive; apt-get install "
                      "libcurl4-openssl-dev libarchive-dev, then scripts/test -R Fetch";
    }
    make_directories(scratch_ / "data");
  }

  /// Returns the environment variables of all programs that the test runs. Mirrors,
  /// data and cache are in the test's scratch directory.
  Variables variables() const {
    return {
        {"TANDEM_MIRRORS", scratch_ / "mirrors.toml"},
        {"TANDEM_DATA", scratch_ / "data"},
        {"XDG_CACHE_HOME", scratch_ / "cache"},
        {"no_proxy", "127.0.0.1"}};
  }
  void write_mirrors(const std::string& text) const {
    replace_file(scratch_ / "mirrors.toml", text);
  }
  CommandResult run(const Arguments& arguments) const {
    return tandem_run(arguments, variables());
  }
  CommandResult fetch(
      const std::string& name, const Arguments& more = {}) const {
    return run(with({"data", "fetch", name}, more));
  }
  std::string fetched(const std::string& name) const {
    return scratch_ / ("data/tiny/" + name);
  }
  /// Expects that `folder` contains exactly `files`.
  void expect_files(const std::string& folder, const Files& files) const {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files) {
      names.push_back(name);
      EXPECT_TRUE(read_file(folder + "/" + name) == bytes) << name;
    }
    EXPECT_EQ(list_directory(folder), names);
  }

  const Scratch scratch_;
};

}  // namespace tandem
