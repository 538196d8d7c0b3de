// An installed tandem is found by another project, and its examples run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tandem {
namespace {

using testing::HasSubstr;

void expect_ok(const CommandResult& result) {
  EXPECT_TRUE(result.status.ok()) << result.output << result.errors;
}

TEST(Install, AProjectOfItsOwnBuildsAgainstIt) {
  const Scratch scratch;
  const auto prefix = scratch / "prefix";
  expect_ok(run_command({"cmake", "--install", TANDEM_BINARY_DIR, "--prefix", prefix}));
  const auto source = scratch / "project";
  make_directories(source);
  replace_file(
      source + "/CMakeLists.txt",
      "cmake_minimum_required(VERSION 3.25)\n"
      "project(mine LANGUAGES CXX)\n"
      "find_package(tandem REQUIRED)\n"
      "add_executable(mine " TANDEM_SOURCE_DIR
      "/examples/hello_ranks/main.cpp)\n"
      "target_link_libraries(mine PRIVATE tandem::tandem)\n");
  const auto build = scratch / "build";
  expect_ok(run_command(
      {"cmake", "-G", "Ninja", "-S", source, "-B", build,
       "-DCMAKE_PREFIX_PATH=" + prefix, "-DCMAKE_CXX_COMPILER_LAUNCHER="}));
  expect_ok(run_command({"cmake", "--build", build}));
  const auto run = run_command(
      {prefix + "/bin/tandem", "launch", "--nproc-per-node", "3", build + "/mine"});
  expect_ok(run);
  EXPECT_THAT(run.output, HasSubstr("hello from rank 2 of 3"));
  EXPECT_THAT(run.output, HasSubstr("1 + ... + 3 = 6"));
}

CommandResult launch_example(int ranks, const std::vector<std::string>& command) {
  std::vector<std::string> all = {"launch", "--nproc-per-node", std::to_string(ranks)};
  all.push_back(program(command[0]));
  all.insert(all.end(), command.begin() + 1, command.end());
  return tandem_run(all);
}

TEST(Examples, HelloRanksAddsUp) {
  const auto run = launch_example(4, {"hello_ranks"});
  expect_ok(run);
  EXPECT_THAT(run.output, HasSubstr("1 + ... + 4 = 10"));
}

TEST(Examples, OwnLoopEndsWithEqualWeightsOnAllRanks) {
  const auto run = launch_example(2, {"own_loop", "1", "6400"});
  expect_ok(run);
  const auto weights_of = [&](const std::string& rank) {
    const std::string mark = "[rank " + rank + "] weights ";
    const size_t at = run.output.find(mark);
    return at == std::string::npos ? "none " + rank
                                   : run.output.substr(at + mark.size(), 64);
  };
  EXPECT_EQ(weights_of("0"), weights_of("1"));
}

TEST(Examples, CustomModelLearns) {
  const auto run = launch_example(2, {"custom_model"});
  expect_ok(run);
  EXPECT_THAT(run.output, HasSubstr("custom (55050 parameters)"));
  EXPECT_THAT(run.output, HasSubstr("rank 1: 8"));  // 80 % and more
}

}  // namespace
}  // namespace tandem
