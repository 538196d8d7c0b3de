#include "app/fetch/mirrors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tandem/data/dataset.h"
#include "tandem/data/named_datasets.h"
#include "tests/base/test_tools.h"

namespace tandem::app::mirrors_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kSha(64, 'a');
const std::string kRow = "{name = \"f.gz\", size = 5, sha256 = \"" + kSha + "\"}";
const std::string kUrls = "urls = [\"https://a/b\"]\n";

// Returns a set with one value replaced.
std::string set_with(const std::string& urls, const std::string& files) {
  return "[own]\nurls = " + urls + "\nfiles = " + files + "\n";
}

std::string refusal_of(const std::string& text) {
  return error_of<ConfigError>([&] { parse_mirrors(text, "m.toml"); });
}

TEST(Mirrors, OfTheProgramHaveEveryDataSetWithFiles) {
  unsetenv("TANDEM_MIRRORS");
  const Mirrors mirrors = read_mirrors();
  for (const auto& entry : named_datasets()) {
    if (entry.name == std::string("digits")) {
      continue;
    }
    const RemoteSet& set = find_set(mirrors, entry.name);
    EXPECT_GE(set.urls.size(), 2u) << entry.name;
    for (const auto& url : set.urls) {
      EXPECT_THAT(url, AllOf(StartsWith("http"), testing::EndsWith("/")));
    }
  }
  EXPECT_EQ(mirrors.size(), named_datasets().size() - 1);
  // A file's size is its records', so that a wrong digit of these is seen.
  for (const auto& file : find_set(mirrors, "cifar-10").files) {
    EXPECT_EQ(file.size, 10'000 * 3073) << file.name;
  }
}

TEST(Mirrors, AreReadWithAllValues) {
  const Mirrors mirrors = parse_mirrors(
      "[own]\n"
      "urls = [\"http://a/b\", \"https://c/\", \"file:///d\", \"/e f%\"]\n"
      "files = [" +
          kRow +
          "]\n"
          "archive = {name = \"x.tar.gz\", folder = \"in\", size = 7, sha256 = \"" +
          std::string(64, 'B') + "\"}\n",
      "m.toml");
  ASSERT_EQ(mirrors.size(), 1u);
  const RemoteSet& set = mirrors.at("own");
  EXPECT_EQ(set.name, "own");
  EXPECT_THAT(
      set.urls,
      ElementsAre("http://a/b/", "https://c/", "file:///d/", "file:///e%20f%25/"));
  ASSERT_EQ(set.files.size(), 1u);
  EXPECT_EQ(set.files[0].name, "f.gz");
  EXPECT_EQ(set.files[0].size, 5);
  EXPECT_EQ(set.files[0].sha256, kSha);
  ASSERT_TRUE(set.archive);
  EXPECT_EQ(set.archive->folder, "in");
  EXPECT_EQ(set.archive->file.name, "x.tar.gz");
  EXPECT_EQ(set.archive->file.size, 7);
  // sha256sum prints lower-case digits, other programs upper-case ones.
  EXPECT_EQ(set.archive->file.sha256, std::string(64, 'b'));
}

TEST(Mirrors, MayBeRelativeFolders) {
  // A space in a path becomes %20.
  const Scratch folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "a b");
  std::filesystem::current_path(folder / "a b");
  const auto mirrors =
      parse_mirrors(set_with("[\"here\"]", "[" + kRow + "]"), "m.toml");
  std::filesystem::current_path(before);
  EXPECT_EQ(mirrors.at("own").urls.at(0), "file://" + (folder / "a%20b") + "/here/");
}

TEST(Mirrors, OfAUserReplaceUrlsAndAddSets) {
  const Scratch folder;
  replace_file(
      folder / "m.toml",
      "[mnist]\nurls = [\"/mirror\"]\n" + set_with("[\"/own\"]", "[" + kRow + "]"));
  setenv("TANDEM_MIRRORS", (folder / "m.toml").c_str(), 1);
  const Mirrors mirrors = read_mirrors();
  unsetenv("TANDEM_MIRRORS");
  const RemoteSet& mnist = find_set(mirrors, "mnist");
  EXPECT_THAT(mnist.urls, ElementsAre("file:///mirror/"));
  EXPECT_EQ(mnist.files.size(), 4u);
  EXPECT_EQ(find_set(mirrors, "own").files.size(), 1u);
  EXPECT_THAT(find_set(mirrors, "kmnist").urls.at(0), StartsWith("https://codh"));
}

TEST(Mirrors, SuggestTheNearestName) {
  const Mirrors mirrors = read_mirrors();
  expect_error<ConfigError>(
      [&] { find_set(mirrors, "fashon-mnist"); },
      {"did you mean 'fashion-mnist'", "kmnist"});
  expect_error<ConfigError>(
      [&] { find_set(mirrors, "digits"); }, {"draws the digits itself"});
}

TEST(Mirrors, ReportErrorsWithTheirLine) {
  const std::string files = "[" + kRow + "]";
  const std::string urls = "[\"https://a/\"]";
  const auto row = [](const std::string& name, const std::string& size,
                      const std::string& sha) {
    return "[{name = " + name + ", size = " + size + ", sha256 = " + sha + "}]";
  };
  const std::string sha = "\"" + kSha + "\"";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[own\n", "m.toml:1: "},
      {"own = 3\n", "m.toml:1: own is not a table"},
      {"[own]\nfiles = " + files, "m.toml:1: urls is missing"},
      {"[own]\n" + kUrls, "own has no files"},
      {"[own]\n" + kUrls + "file = []\nfiles = " + files, "did you mean 'files'"},
      {"[\"../own\"]\n" + kUrls + "files = " + files, "'../own' is no name"},
      {"[\".\"]\n" + kUrls + "files = " + files, "'.' is no name"},
      {set_with("[]", files), "m.toml:2: urls is invalid, expected a list"},
      {set_with("\"https://a/\"", files), "urls is invalid, expected a list"},
      {set_with("[3]", files), "'' is no address of a mirror"},
      {set_with("[\"\"]", files), "'' is no address of a mirror"},
      {set_with("[\"ftp://a/\"]", files), "'ftp://a/' is no address"},
      {set_with("[\"file://host/a\"]", files), "'file://host/a' is no address"},
      {set_with(urls, "[]"), "m.toml:3: files is invalid, expected a list"},
      {set_with(urls, "[3]"), "a file is not a table"},
      {set_with(urls, "[{size = 5, sha256 = " + sha + "}]"), "name is missing"},
      {set_with(urls, "[{name = \"f\", sha256 = " + sha + "}]"), "size is missing"},
      {set_with(urls, "[{name = \"f\", size = 5}]"), "sha256 is missing"},
      {set_with(urls, "[{name = \"f\", size = 5, md5 = \"\", sha256 = " + sha + "}]"),
       "unknown key 'md5'"},
      {set_with(urls, row("3", "5", sha)), "name is invalid"},
      {set_with(urls, row("\"\"", "5", sha)), "name is invalid"},
      {set_with(urls, row("\"..\"", "5", sha)), "name is invalid"},
      {set_with(urls, row("\".part\"", "5", sha)), "name is invalid"},
      {set_with(urls, row("\"a/b\"", "5", sha)), "name is invalid"},
      {set_with(urls, row("\"a b\"", "5", sha)), "name is invalid"},
      {set_with(urls, row("\"a?b\"", "5", sha)), "name is invalid"},
      {set_with(urls, row("\"a\\u0000b\"", "5", sha)), "name is invalid"},
      {set_with(urls, row("\"f\"", "0", sha)), "size is invalid"},
      {set_with(urls, row("\"f\"", "-5", sha)), "size is invalid"},
      {set_with(urls, row("\"f\"", "5.0", sha)), "size is invalid"},
      {set_with(urls, row("\"f\"", "\"5\"", sha)), "size is invalid"},
      {set_with(urls, row("\"f\"", "5", "\"aa\"")), "64 hex digits"},
      {set_with(urls, row("\"f\"", "5", "\"" + std::string(64, 'g') + "\"")),
       "64 hex digits"},
      {set_with(urls, "[" + kRow + ", " + kRow + "]"), "f.gz is there twice"},
      {set_with(urls, files) + "archive = 3\n", "archive is not a table"},
      {set_with(urls, files) + "archive = {name = \"x\", size = 5, sha256 = " + sha +
           "}\n",
       "folder is missing"},
      {set_with(urls, files) + "archive = {name = \"x\", folder = \"..\", size = 5, " +
           "sha256 = " + sha + "}\n",
       "folder is invalid"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(
        refusal_of(text), AllOf(StartsWith("[config] m.toml:"), HasSubstr(expected)))
        << text;
  }
  // A name that tandem knows needs no files; a similar name gets a hint.
  const Mirrors known = parse_mirrors(set_with(urls, files), "known.toml");
  expect_error<ConfigError>(
      [&] { parse_mirrors("[owm]\n" + kUrls, "m.toml", known); },
      {"did you mean 'own'"});
}

}  // namespace tandem::app::mirrors_test
