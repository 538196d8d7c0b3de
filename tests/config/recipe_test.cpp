// Hostile and unusual recipes; tests/program has usual ones.

#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/config/run_config.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::recipe_test {

RunConfig read(const std::string& path) {
  RunConfig config;
  read_recipe(config, path);
  return config;
}

RunConfig read_text(const std::string& text) {
  RunConfig config;
  read_recipe_text(config, text, "a.toml");
  return config;
}

TEST(Recipe, ReadsAllFormsOfNumbers) {
  const RunConfig config = read_text(
      "seed = 0xff\nbatch_size = 1_000\nepochs = 0b11\nlimit = 0o17\nlr = 1e-3\n"
      "nproc = 0x2\n");
  EXPECT_EQ(config.training.seed, 255);
  EXPECT_EQ(config.training.batch_size, 1000);
  EXPECT_EQ(config.training.epochs, 3);
  EXPECT_EQ(config.data.limit, 15);
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.ranks.nproc, 2);
}

TEST(Recipe, LaunchTableNamesTheLauncher) {
  EXPECT_EQ(
      read_text("[launch]\nwith = \"mpirun\"\n").ranks.launcher, LauncherKind::mpirun);
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"launch = \"mpirun\"\n", "a.toml:1: launch is mpirun, expected a table"},
           {"[launch]\nby = \"mpirun\"\n", "a.toml:2: unknown key 'by' in [launch]"},
           {"[launch]\nwith = 3\n",
            "a.toml:2: launcher = 3, expected a string in quotes"}}) {
    expect_error<ConfigError>([&, text = text] { read_text(text); }, {wanted});
  }
}

// As for data and init: only the path of a base is relative to the recipe.
TEST(Recipe, PathsOfModelsAreRelativeToTheWorkingDirectory) {
  EXPECT_EQ(read_text("model = \"nets/a.pt2\"\n").model.file, "nets/a.pt2");
}

TEST(Recipe, ReadsItsOwnOutput) {
  RunConfig config;
  for (int c = 1; c < 0x80; ++c) {
    config.name += static_cast<char>(c);  // quotes, backslash, controls, DEL
  }
  config.optimizer.lr = 0.1 + 0.2;
  config.optimizer.eps = 1e-300;
  config.schedule.gamma = -0.0;
  config.strategy.clip_norm = 123456789012345678.0;
  config.training.seed = int64_t{1} << 40;
  config.output.trace = true;
  const RunConfig again = read_text(to_toml(config));
  EXPECT_EQ(again.name, config.name);
  EXPECT_EQ(again.optimizer.lr, config.optimizer.lr);
  EXPECT_EQ(again.training.seed, config.training.seed);
  EXPECT_EQ(to_toml(again), to_toml(config));
}

TEST(Recipe, RefusesACycleOfBases) {
  const Scratch scratch;
  std::filesystem::create_symlink(scratch / "a.toml", scratch / "link.toml");
  const std::string folder = std::filesystem::path(scratch.path()).filename();
  const std::vector<std::string> names = {
      "a.toml", "./a.toml", "../" + folder + "/a.toml", "link.toml"};
  for (const auto& base : names) {
    replace_file(scratch / "a.toml", "model = \"net\"\nbase = \"" + base + "\"\n");
    expect_error<ConfigError>(
        [&] { read(scratch / "a.toml"); }, {"a.toml:2", "base is '" + base + "'"});
  }
  replace_file(scratch / "a.toml", "base = \"b.toml\"\n");
  replace_file(scratch / "b.toml", "base = \"./a.toml\"\n");
  expect_error<ConfigError>([&] { read(scratch / "a.toml"); }, {"b.toml:1"});
}

TEST(Recipe, RefusesArraysAndTablesAsValues) {
  for (const auto& [line, found] : std::vector<std::pair<std::string, std::string>>{
           {"base = [inf]", "base is 'an array'"},
           {"lr = {a = [nan]}", "lr is 'a table'"}}) {
    expect_error<ConfigError>([&, &line = line] { read_text(line); }, {found});
  }
}

TEST(Recipe, RefusesAKeyWithManyDots) {
  const Scratch scratch;
  std::string key = "a";
  for (int i = 0; i < 400'000; ++i) {
    key += ".a";
  }
  replace_file(scratch / "deep.toml", key + " = 1\n");
  expect_error<DataError>(
      [&] { read(scratch / "deep.toml"); }, {"deep.toml'", "more than 65536 bytes"});
  expect_error<ConfigError>(
      [&] { read_text(key.substr(0, 1001) + " = 1\n"); }, {"unknown table [a]"});
}

TEST(Recipe, RefusesAnEndlessFile) {
  expect_error<DataError>([&] { read("/dev/zero"); }, {"'/dev/zero'"});
}

TEST(Recipe, RefusesAnInvalidVersion) {
  for (const std::string version : {"1e300", "1.0", "2", "true", "\"1\""}) {
    expect_error<ConfigError>(
        [&] { read_text("format_version = " + version + "\n"); },
        {"a.toml:1", "format_version is"});
  }
}

TEST(Recipe, ErrorsAreOneLine) {
  expect_error<ConfigError>([] { read_text("\"a\\nb\\u001b\" = 1\n"); }, {"'a?b?'"});
}

}  // namespace tandem::recipe_test
