// tandem plan: predictions from each source, and refused arguments.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tandem::plan_test {

using nlohmann::json;
using testing::HasSubstr;

CommandResult plan(const Arguments& arguments) {
  return tandem_run(with({"plan"}, arguments));
}

// Returns the JSON output of a plan.
json planned(const Arguments& arguments) {
  return json::parse(checked(plan(with(arguments, {"--json"}))).output);
}

TEST(Plan, PredictsFromFlags) {
  // 8 MB over 8 Gbit/s, all after backward: two nodes send 4 MB twice.
  const auto rows = planned(
      {"--step-ms", "100", "--gradient-bytes", "8e6", "--sync", "flat",
       "--bandwidth-gbit", "8", "--latency-us", "500", "--batch-size", "64", "--nodes",
       "1,2"})["rows"];
  EXPECT_DOUBLE_EQ(rows[0]["step_ms"], 100);
  EXPECT_DOUBLE_EQ(rows[0]["samples_per_second"], 640);
  EXPECT_DOUBLE_EQ(rows[1]["comm_ms"], 2 * (0.5 + 4));
  EXPECT_DOUBLE_EQ(rows[1]["step_ms"], 109);
  EXPECT_DOUBLE_EQ(rows[1]["efficiency"], 100.0 / 109);
}

TEST(Plan, SixteenBitsHalveTheBytes) {
  const auto row = planned(
      {"--step-ms", "100", "--buckets", "6e6@50,2e6@0", "--comm-hook", "bf16",
       "--bandwidth-gbit", "8", "--latency-us", "0", "--nodes", "2"})["rows"][0];
  EXPECT_DOUBLE_EQ(row["comm_ms"], 4);
  // The first bucket overlaps backward.
  EXPECT_DOUBLE_EQ(row["exposed_ms"], 1);
}

TEST(Plan, PrintsARowPerNumberOfNodes) {
  const auto result = checked(
      plan({"--step-ms", "27", "--gradient-bytes", "4799528", "--nodes", "1..1000"}));
  expect_parts(
      result.output,
      {"Step (from flags): 27 ms", "efficiency %", "\n1 ", "\n512 ", "\n1000 "});
}

TEST(Plan, MeasuresAStepWithoutFrozenParameters) {
  const auto measured = planned(
      {"--measure", "--model", "simplenet", "--freeze", "*.weight", "--batch-size",
       "16", "--nodes", "1,4"});
  EXPECT_THAT(
      measured["origin"].get<std::string>(), HasSubstr("measured here: simplenet"));
  EXPECT_EQ(measured["batch"], 16);
  // The ten values of the bias, with their padding.
  EXPECT_THAT(measured["buckets"].get<std::string>(), testing::StartsWith("64@"));
  EXPECT_GT(measured["rows"][0]["step_ms"], 0);
  EXPECT_GT(measured["rows"][1]["step_ms"], measured["rows"][0]["step_ms"]);
}

TEST(Plan, ShowsMemoryAndBytesForEachKindOfSharding) {
  const Arguments measured = {"--measure", "--model",     "net",  "--executor",
                              "eager",     "--optimizer", "adam", "--batch-size",
                              "8",         "--nodes",     "1,4"};
  const auto rows = planned(measured)["memory"];
  ASSERT_EQ(rows.size(), 4u);
  const auto bytes = [&](size_t row) {
    return rows[row]["bytes_per_rank"].get<double>();
  };
  // The parameters of net, whose tensors have padding.
  const double model = 4 * 1'199'882;
  const double activations = bytes(0) - 4 * model;
  EXPECT_GT(activations, 0);
  EXPECT_LT(activations, 8 * 1e6);
  // Adam has two values per parameter. With 4 ranks, three quarters are elsewhere.
  EXPECT_NEAR(bytes(0) - bytes(1), 2 * model * 3 / 4, 0.01 * model);
  // The largest bucket is fc1's weight, so two buckets need more than all gradients.
  EXPECT_EQ(bytes(2), bytes(1));
  EXPECT_EQ(rows[3]["shard"], "parameters");
  EXPECT_NEAR(rows[0]["bytes_sent"], 2 * model * 3 / 4, 0.01 * model);
  EXPECT_NEAR(rows[3]["bytes_sent"], 3 * model * 3 / 4, 0.01 * model);
  expect_parts(
      checked(plan(measured)).output,
      {"Tensors of a rank without --shard: 4.6 MiB of parameters", "MiB per rank of 4",
       "\nparameters "});
}

TEST(Plan, BenchStepReportsWhenGradientsAreReady) {
  const auto step =
      json::parse(run_ok({"bench", "step", "--model", "net", "--batch-size", "2",
                          "--steps", "3", "--warmup", "1", "--json"})
                      .output);
  EXPECT_GT(step["ms_before_update"], 0);
  EXPECT_LE(step["ms_before_update"], step["p90"]);
  // fc2; fc1, which is larger than a bucket; the convolutions, which are last.
  const auto& buckets = step["buckets"];
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[1]["bytes"], 4718592);
  EXPECT_GT(buckets[1]["lead_ms"], buckets[2]["lead_ms"]);
}

TEST(Plan, ReadsARun) {
  const Scratch scratch;
  const auto train = [&](const std::string& nproc) {
    const auto out = scratch / nproc;
    run_ok(
        {"train", "--model", "simplenet", "--nproc", nproc, "--limit", "2560",
         "--log-every", "5", "--out", out});
    return out;
  };
  const auto three = train("3");
  const auto result = planned({"--from", three, "--nodes", "2"});
  EXPECT_THAT(
      result["origin"].get<std::string>(), HasSubstr("from " + three + ": simplenet"));
  EXPECT_EQ(result["batch"], 64);
  EXPECT_EQ(result["rows"][0]["ranks"], 6);
  const auto crowded = plan({"--from", three, "--ranks-per-node", "2"});
  expect_exit(crowded, 2, {"leave --ranks-per-node out"});
  const auto one = train("1");
  const auto silent = plan({"--from", one});
  expect_exit(silent, 2, {"add --gradient-bytes"});
  checked(plan({"--from", one, "--gradient-bytes", "31400"}));
}

TEST(Plan, RefusesInOneLine) {
  const Scratch scratch;
  replace_file(scratch / "summary.json", "{\"strategy\": \"hogwild\"}");
  make_directories(scratch / "divided");
  replace_file(scratch / "divided/summary.json", "{\"strategy\": \"data_parallel\"}");
  replace_file(scratch / "divided/config.toml", "divide_batch = true\n");
  const std::vector<std::string> good = {"--step-ms", "27", "--gradient-bytes", "5e6"};
  const auto refused = [&](const Arguments& more, const char* reason,
                           bool alone = false, int code = 2) {
    const auto result = plan(with(alone ? std::vector<std::string>() : good, more));
    expect_error_line(result, code, {reason});
    EXPECT_EQ(result.output, "");
  };
  refused({}, "give one of --measure, --from RUN_DIRECTORY and --step-ms", true);
  refused({"--measure"}, "one source of the step's time");
  refused({"--step-ms", "27"}, "add --gradient-bytes", true);
  refused({"--step-ms", "0", "--gradient-bytes", "1"}, "change --step-ms", true);
  refused({"--step-ms", "-3", "--gradient-bytes", "1"}, "'-3'", true);
  refused({"--nodes", "4..1"}, "whose end is not below its start");
  refused({"--nodes", "1..x"}, "--nodes is '1..x'");
  refused({"--nodes", "0"}, "--nodes is '0'");
  refused({"--nodes", "1,,2"}, "--nodes is '1,,2'");
  refused({"--node", "3"}, "did you mean '--nodes'");
  refused({"--bandwidth-gbit", "0"}, "set --bandwidth-gbit");
  refused({"--bandwidth-gbit", "fast"}, "'fast'");
  refused({"--overlap", "1.5"}, "'1.5' is not a number from 0 to 1");
  refused({"--buckets", "5@"}, "--buckets has '5@'");
  refused({"--bucket-bytes", "0"}, "change --bucket-bytes");
  refused({"--ranks-per-node", "0"}, "'0' is not a whole number");
  refused({"--crowding", "0.5"}, "change --crowding to 1 or more");
  refused({"--sync", "overlapp"}, "did you mean 'overlap'");
  refused({"--sync", "parameter"}, "choose one of overlap, flat");
  refused({"--comm-hook", "fp8"}, "choose one of none, fp16, bf16");
  refused({"--model", "net"}, "add --measure");
  refused({"--data", "digits"}, "add --measure");
  // Before any measurement.
  refused({"--measure", "--model", "nett"}, "error: [config] --model: model", true);
  refused({"--measure", "--model", "nett"}, "did you mean 'net'", true);
  refused({"--measure", "--executor", "egar"}, "error: [config] --executor: ", true);
  refused({"--measure", "--precision", "fp8"}, "error: [config] --precision: ", true);
  refused({"--measure", "--optimizer", "sdg"}, "did you mean 'sgd'", true);
  refused({"--from", scratch / "none"}, "summary.json", true, 1);
  refused({"--from", scratch / ""}, "strategy hogwild", true);
  refused({"--from", scratch / "divided"}, "name a run without divide_batch", true);
}

}  // namespace tandem::plan_test
