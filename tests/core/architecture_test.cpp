#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tests/places.h"

namespace tandem::architecture_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A file may include its own folder and lower layers.
const std::map<std::string, int> kLayers = {
    {"base", 0},     {"config", 1},     {"core", 1},    {"launch", 1},
    {"comm", 2},     {"data", 2},       {"formats", 2}, {"kernels", 2},
    {"optim", 2},    {"graph", 3},      {"model", 4},   {"exec", 5},
    {"parallel", 6}, {"checkpoint", 7}, {"train", 8},   {"app", 9}};

std::vector<std::string> includes_of(const std::string& text) {
  static const std::regex line("^[ \t]*#[ \t]*include[ \t]*[\"<]([^\">]+)[\">]");
  std::vector<std::string> paths;
  for (const auto& one : split(text, '\n')) {
    std::smatch found;
    if (std::regex_search(one, found, line)) {
      paths.push_back(found[1]);
    }
  }
  return paths;
}

// Returns "comm" for "tandem/comm/backends/gloo.h" and "app" for "app/main.cpp".
// Returns "" for the umbrella header, which is in no folder and includes all.
std::string folder_of(const std::string& path) {
  static const std::regex inner("^tandem/([^/]+)/");
  std::smatch found;
  if (std::regex_search(path, found, inner)) {
    return found[1];
  }
  return path.rfind("app/", 0) == 0 ? "app" : "";
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

bool is_libtorch(const std::string& include) {
  return starts_with(include, "torch/") || starts_with(include, "ATen/") ||
         starts_with(include, "c10/");
}

std::optional<std::string> forbidden_edge(
    const std::string& path, const std::string& include) {
  const std::string from = folder_of(path);
  const std::string to = folder_of(include);
  if (from.empty() || to.empty() || from == to) {
    return std::nullopt;
  }
  if (kLayers.count(from) == 0 || kLayers.count(to) == 0) {
    return path + " and " + include + ": a folder without a layer";
  }
  if (kLayers.at(from) > kLayers.at(to)) {
    return std::nullopt;
  }
  return path + " includes " + include;
}

// Returns the violations of the architecture in one file.
std::vector<std::string> violations(const std::string& path, const std::string& text) {
  std::vector<std::string> found;
  const std::string folder = folder_of(path);
  for (const auto& include : includes_of(text)) {
    if (const auto edge = forbidden_edge(path, include)) {
      found.push_back(*edge);
    }
    if (starts_with(include, "torch/csrc/distributed") && folder != "comm") {
      found.push_back(path + ": c10d outside of comm");
    }
    if (include == "torch/torch.h" && path.substr(path.size() - 2) == ".h") {
      found.push_back(path + ": torch/torch.h in a header");
    }
  }
  // TORCH_VERSION is allowed, because it is a string to print.
  if (path.rfind("tandem/core/torch_compat.", 0) != 0 &&
      text.find("TORCH_VERSION_M") != std::string::npos) {
    found.push_back(path + ": a LibTorch version outside of core/torch_compat");
  }
  return found;
}

std::vector<std::string> source_files() {
  const std::filesystem::path root = source_dir();
  std::vector<std::string> files;
  for (const char* folder : {"tandem", "app"}) {
    if (!std::filesystem::exists(root / folder)) {
      continue;
    }
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(root / folder)) {
      const auto extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp" || extension == ".cu") {
        files.push_back(entry.path().lexically_relative(root).string());
      }
    }
  }
  return files;
}

TEST(Architecture, FilesIncludeOnlyLowerLayers) {
  const auto files = source_files();
  ASSERT_GT(files.size(), 50u);
  for (const auto& path : files) {
    const auto text = read_file(source_dir() + "/" + path);
    EXPECT_THAT(violations(path, text), IsEmpty());
  }
}

// Returns the directory of a path, for instance "tandem/comm/shm".
std::string directory_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

using Edges = std::map<std::string, std::set<std::string>>;

// Returns whether a path of includes leads from `from` to `to`.
bool leads_to(const Edges& edges, const std::string& from, const std::string& to) {
  std::set<std::string> seen;
  std::vector<std::string> waiting = {from};
  while (!waiting.empty()) {
    const auto next = waiting.back();
    waiting.pop_back();
    const auto found = edges.find(next);
    if (found == edges.end() || !seen.insert(next).second) {
      continue;
    }
    if (found->second.count(to) > 0) {
      return true;
    }
    waiting.insert(waiting.end(), found->second.begin(), found->second.end());
  }
  return false;
}

TEST(Architecture, FoldersDoNotIncludeEachOther) {
  Edges edges;
  for (const auto& path : source_files()) {
    for (const auto& include : includes_of(read_file(source_dir() + "/" + path))) {
      const bool ours = starts_with(include, "tandem/") || starts_with(include, "app/");
      if (ours && directory_of(include) != directory_of(path)) {
        edges[directory_of(path)].insert(directory_of(include));
      }
    }
  }
  ASSERT_GT(edges.size(), 20u);
  for (const auto& [folder, included] : edges) {
    EXPECT_FALSE(leads_to(edges, folder, folder)) << folder << " is in a cycle";
  }
  edges["tandem/base"].insert("tandem/train");
  EXPECT_TRUE(leads_to(edges, "tandem/base", "tandem/base"));
}

// Returns the sources below `root` of targets that do not link LibTorch, which CMake
// lists.
std::vector<std::string> thin_sources(const std::string& root) {
  std::istringstream lines(read_file(binary_dir() + "/thin_sources.txt"));
  std::vector<std::string> sources;
  for (std::string path; std::getline(lines, path);) {
    if (starts_with(path, root + "/tandem/") || starts_with(path, root + "/app/")) {
      sources.push_back(path.substr(root.size() + 1));
    }
  }
  return sources;
}

// Returns the first LibTorch header that a file includes, also indirectly, or "".
std::string libtorch_in(const std::string& path, std::set<std::string>& seen) {
  if (!seen.insert(path).second) {
    return "";
  }
  for (const auto& include : includes_of(read_file(source_dir() + "/" + path))) {
    if (is_libtorch(include)) {
      return path + " includes " + include;
    }
    if (starts_with(include, "tandem/") || starts_with(include, "app/")) {
      const auto found = libtorch_in(include, seen);
      if (!found.empty()) {
        return found;
      }
    }
  }
  return "";
}

// Targets that CMake links without LibTorch must not include its headers.
TEST(Architecture, ThinProgramDoesNotIncludeLibTorch) {
  const auto files = thin_sources(source_dir());
  ASSERT_GT(files.size(), 100u);
  std::set<std::string> seen;
  for (const auto& file : files) {
    EXPECT_EQ(libtorch_in(file, seen), "");
  }
  seen.clear();
  EXPECT_NE(libtorch_in("tandem/train/trainer.cpp", seen), "");
}

// Returns whether a function returns a WorkPtr without [[nodiscard]]. If a caller drops
// it without wait(), the operation runs while its tensors are in use.
bool lets_a_work_be_dropped(const std::string& header) {
  static const std::regex declaration("\n *(virtual |static )*WorkPtr [a-z_]+\\(");
  return std::regex_search(header, declaration);
}

TEST(Architecture, FunctionsThatReturnAWorkAreNodiscard) {
  EXPECT_TRUE(lets_a_work_be_dropped("\n  virtual WorkPtr send(at::Tensor tensor);"));
  EXPECT_FALSE(lets_a_work_be_dropped("\n  [[nodiscard]] WorkPtr send(at::Tensor x);"));
  for (const auto& path : source_files()) {
    if (path.substr(path.size() - 2) == ".h") {
      EXPECT_FALSE(lets_a_work_be_dropped(read_file(source_dir() + "/" + path)))
          << path;
    }
  }
}

TEST(Architecture, CheckerFindsForbiddenIncludes) {
  const auto check = [](const std::string& path, const std::string& include) {
    return violations(
        path, "#pragma once\n#include <vector>\n" + include + "\nint x;\n");
  };
  // A sibling, a higher layer, and a folder without a layer.
  EXPECT_THAT(
      check("tandem/data/loader.h", "#include \"tandem/comm/backends/thread.h\""),
      ElementsAre("tandem/data/loader.h includes tandem/comm/backends/thread.h"));
  EXPECT_THAT(
      check("tandem/launch/report.cpp", "  #  include \"tandem/core/arena.h\""),
      ElementsAre(HasSubstr("includes tandem/core/arena.h")));
  EXPECT_THAT(
      check("tandem/exec/eager.cpp", "#include \"tandem/parallel/strategy.h\""),
      ElementsAre(HasSubstr("tandem/exec/eager.cpp includes")));
  EXPECT_THAT(
      check("tandem/train/trainer.cpp", "#include \"app/command.h\""),
      ElementsAre(HasSubstr("includes app/command.h")));
  EXPECT_THAT(
      check("tandem/fetch/http.cpp", "#include \"tandem/base/error.h\""),
      ElementsAre(HasSubstr("without a layer")));

  EXPECT_THAT(
      check("tandem/train/x.cpp", "#include <torch/csrc/distributed/c10d/Store.hpp>"),
      ElementsAre(HasSubstr("c10d")));
  EXPECT_THAT(
      check("tandem/model/x.h", "#include <torch/torch.h>"),
      ElementsAre(HasSubstr("in a header")));
  EXPECT_THAT(
      check("tandem/comm/x.cpp", "#if TORCH_VERSION_MAJOR >= 2"),
      ElementsAre(HasSubstr("torch_compat")));
}

TEST(Architecture, CheckerAcceptsAllowedIncludes) {
  const auto check = [](const std::string& path, const std::string& include) {
    return violations(path, include + "\n");
  };
  EXPECT_THAT(
      check("tandem/train/trainer.cpp", "#include \"tandem/base/error.h\""), IsEmpty());
  EXPECT_THAT(
      check(
          "tandem/comm/backends/gloo.cpp", "#include \"tandem/comm/backends/gloo.h\""),
      IsEmpty());
  EXPECT_THAT(
      check("tandem/comm/x.cpp", "#include <torch/csrc/distributed/c10d/Store.hpp>"),
      IsEmpty());
  EXPECT_THAT(
      check("tandem/tandem.h", "#include \"tandem/train/trainer.h\""), IsEmpty());
  EXPECT_THAT(check("app/main.cpp", "#include \"tandem/train/trainer.h\""), IsEmpty());
  EXPECT_THAT(
      check("tandem/base/x.h", "// #include \"tandem/train/trainer.h\""), IsEmpty());
}

}  // namespace tandem::architecture_test
