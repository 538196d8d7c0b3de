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

TEST(Recipe, ReadsAllFormsOfNumbers) {
  const Scratch scratch;
  replace_file(
      scratch / "a.toml",
      "seed = 0xff\nbatch_size = 1_000\nepochs = 0b11\nlimit = 0o17\nlr = 1e-3\n"
      "nproc = 0x2\n");
  const RunConfig config = read(scratch / "a.toml");
  EXPECT_EQ(config.training.seed, 255);
  EXPECT_EQ(config.training.batch_size, 1000);
  EXPECT_EQ(config.training.epochs, 3);
  EXPECT_EQ(config.data.limit, 15);
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.ranks.nproc, 2);
}

TEST(Recipe, LaunchTableNamesTheLauncher) {
  const Scratch scratch;
  const auto read_text = [&](const std::string& text) {
    replace_file(scratch / "a.toml", text);
    return read(scratch / "a.toml");
  };
  EXPECT_EQ(
      read_text("[launch]\nwith = \"mpirun\"\n").ranks.launcher, LauncherKind::mpirun);
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"launch = \"mpirun\"\n", "a.toml:1: launch is mpirun, expected a table"},
           {"[launch]\nby = \"mpirun\"\n", "a.toml:2: unknown key 'by' in [launch]"},
           {"[launch]\nwith = 3\n",
            "a.toml:2: launcher = 3, expected a string in quotes"}}) {
    expect_error<ConfigError>([&] { read_text(text); }, {wanted});
  }
}

// As for data and init: only the path of a base is relative to the recipe.
TEST(Recipe, PathsOfModelsAreRelativeToTheWorkingDirectory) {
  const Scratch scratch;
  replace_file(scratch / "a.toml", "model = \"nets/a.pt2\"\n");
  EXPECT_EQ(read(scratch / "a.toml").model.file, "nets/a.pt2");
}

TEST(Recipe, ReadsItsOwnOutput) {
  const Scratch scratch;
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
  replace_file(scratch / "a.toml", to_toml(config));
  const RunConfig again = read(scratch / "a.toml");
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
  const Scratch scratch;
  for (const auto& [line, found] : std::vector<std::pair<std::string, std::string>>{
           {"base = [inf]", "base is 'an array'"},
           {"lr = {a = [nan]}", "lr is 'a table'"}}) {
    replace_file(scratch / "a.toml", line);
    expect_error<ConfigError>([&] { read(scratch / "a.toml"); }, {found});
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
  replace_file(scratch / "deep.toml", key.substr(0, 1001) + " = 1\n");
  expect_error<ConfigError>(
      [&] { read(scratch / "deep.toml"); }, {"unknown table [a]"});
}

TEST(Recipe, RefusesAnEndlessFile) {
  expect_error<DataError>([&] { read("/dev/zero"); }, {"'/dev/zero'"});
}

TEST(Recipe, RefusesAnInvalidVersion) {
  const Scratch scratch;
  for (const std::string version : {"1e300", "1.0", "2", "true", "\"1\""}) {
    replace_file(scratch / "a.toml", "format_version = " + version + "\n");
    expect_error<ConfigError>(
        [&] { read(scratch / "a.toml"); }, {"a.toml:1", "format_version is"});
  }
}

TEST(Recipe, ErrorsAreOneLine) {
  const Scratch scratch;
  replace_file(scratch / "a.toml", "\"a\\nb\\u001b\" = 1\n");
  expect_error<ConfigError>([&] { read(scratch / "a.toml"); }, {"'a?b?'"});
}

}  // namespace tandem::recipe_test
