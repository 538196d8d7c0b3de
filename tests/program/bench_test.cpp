// The output of bench commands. No test checks a speed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "program.h"

namespace tandem::bench_test {

using testing::HasSubstr;
using testing::Not;

TEST(Bench, StepPrintsFiguresAndSettings) {
  const auto result = run_ok(
      {"bench", "step", "--model", "simplenet", "--steps", "5", "--warmup", "1",
       "--json"});
  for (const char* key : {"ms_per_step", "model", "batch", "threads", "executor"}) {
    EXPECT_THAT(result.output, HasSubstr("\"" + std::string(key) + "\""));
  }
}

TEST(Bench, StepHasTheSwitchesOfTrain) {
  const auto step = [](const std::string& layout, const std::string& executor) {
    return tandem_run(
        {"bench", "step", "--model", "net5x5", layout, "--executor", executor,
         "--steps", "2", "--warmup", "1", "--json"});
  };
  const auto eager = checked(step("--channels-last", "eager"));
  checked(step("--no-channels-last", "compiled"));
  EXPECT_THAT(
      step("--channels-last", "compiled").errors, HasSubstr("as with --channels-last"));
  EXPECT_THAT(
      step("--channels-last=maybe", "eager").errors,
      HasSubstr("channels_last is 'maybe', expected true or false"));
}

TEST(Bench, AllreduceListsEveryBackend) {
  const auto result = run_ok(
      {"bench", "allreduce", "--nproc", "3", "--backends", "gloo,shm,thread", "--bytes",
       "65536", "--json"});
  expect_parts(
      result.output,
      {"\"results\"", "\"gloo\"", "\"thread\"", "\"shm\",\"memory\":\"shared\"",
       "\"shm\",\"memory\":\"private\"", "65536"});
}

TEST(Bench, OptimizerCountsTheBytesOfEachOptimizer) {
  const auto result = run_ok(
      {"bench", "optimizer", "--parameters", "1000", "--repeats", "3", "--json"});
  const auto json = nlohmann::json::parse(result.output);
  // Bytes per parameter: each array is read and written, but the gradient only read.
  const std::map<std::string, int> expected = {
      {"sgd", 4 * 5},     {"adam", 4 * 7},    {"adamw", 4 * 7},  {"adadelta", 4 * 7},
      {"adagrad", 4 * 5}, {"rmsprop", 4 * 5}, {"adamax", 4 * 7}, {"nadam", 4 * 7},
      {"radam", 4 * 7},   {"lion", 4 * 5},    {"lamb", 4 * 7},   {"adafactor", 4 * 5},
      {"muon", 4 * 7}};
  std::map<std::string, int> found;
  for (const auto& row : json.at("results")) {
    found[row.at("optimizer")] = row.at("bytes").get<int>() / 1000;
    EXPECT_GT(row.at("ratio_to_memcpy").get<double>(), 0);
  }
  EXPECT_EQ(found, expected);
}

TEST(Bench, OptimizerTimesTheNamedOptimizers) {
  const auto result = run_ok(
      {"bench", "optimizer", "--parameters", "1000", "--optimizers", "adam,sgd"});
  expect_parts(result.output, {"\nadam ", "\nsgd "});
  EXPECT_THAT(result.output, Not(HasSubstr("adadelta")));
}

}  // namespace tandem::bench_test
