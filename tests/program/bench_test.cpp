// The measuring commands give what they promise; how fast is not a test's matter.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tandem {
namespace {

using testing::HasSubstr;

TEST(Bench, StepPrintsItsFigureAndWhatItMeasured) {
  const auto result = tandem_run(
      {"bench", "step", "--model", "simplenet", "--steps", "5", "--warmup", "1",
       "--json"});
  ASSERT_TRUE(result.status.ok()) << result.errors;
  for (const char* key : {"ms_per_step", "model", "batch", "threads", "executor"}) {
    EXPECT_THAT(result.output, HasSubstr("\"" + std::string(key) + "\""));
  }
}

TEST(Bench, AllreduceListsEveryBackend) {
  const auto result = tandem_run(
      {"bench", "allreduce", "--nproc", "2", "--backends", "gloo,shm,thread", "--bytes",
       "65536", "--json"});
  ASSERT_TRUE(result.status.ok()) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("\"results\""));
  EXPECT_THAT(result.output, HasSubstr("\"gloo\""));
  EXPECT_THAT(result.output, HasSubstr("\"thread\""));
  EXPECT_THAT(result.output, HasSubstr("\"shm\",\"memory\":\"shared\""));
  EXPECT_THAT(result.output, HasSubstr("\"shm\",\"memory\":\"private\""));
  EXPECT_THAT(result.output, HasSubstr("65536"));
}

TEST(Bench, UnknownMeasurementNamesTheNearest) {
  const auto result = tandem_run({"bench", "steps"});
  EXPECT_EQ(result.status.code, 2);
  EXPECT_THAT(result.errors, HasSubstr("'step'"));
}

}  // namespace
}  // namespace tandem
