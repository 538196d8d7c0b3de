// The traces that `tandem train --trace` writes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "program.h"
#include "tandem/base/files.h"

namespace tandem::program_trace_test {

using nlohmann::json;
using ::testing::Contains;
using ::testing::Pair;

constexpr int kSteps = 5;

// A span of a trace; times are in microseconds.
struct Span {
  std::string name;
  std::string category;
  int row = 0;
  double start = 0;
  double end = 0;
};

bool is_step(const Span& span) {
  return span.name.rfind("ProfilerStep#", 0) == 0;
}

// Half of the last digit of times in a trace, for sums of rounded numbers.
constexpr double kRounding = 0.002;

bool contains(const Span& outer, const Span& inner) {
  return outer.start <= inner.start + kRounding && inner.end <= outer.end + kRounding;
}

// Reads the trace of a rank and checks the required keys, their types and the order of
// events.
std::vector<Span> read_trace(const std::string& run, int rank, int world_size) {
  const auto trace =
      json::parse(read_file(run + "/trace/rank-" + std::to_string(rank) + ".json"));
  EXPECT_EQ(trace["distributedInfo"]["rank"], rank);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], world_size);
  std::vector<Span> spans;
  std::set<int> named_rows;
  int num_memory = 0;
  for (const auto& event : trace["traceEvents"]) {
    EXPECT_EQ(event.at("pid"), rank);
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") {
        named_rows.insert(event.at("tid").get<int>());
      }
      continue;
    }
    if (event.at("ph") == "C") {
      EXPECT_EQ(event.at("name"), "private memory");
      // The worker's own libraries and tensors.
      EXPECT_GT(event.at("args").at("MiB").get<double>(), 1);
      EXPECT_LT(event.at("args").at("MiB").get<double>(), 4096);
      ++num_memory;
      continue;
    }
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_TRUE(event.at("args").is_object());
    const double start = event.at("ts");
    const double duration = event.at("dur");
    EXPECT_GE(duration, 0);
    EXPECT_TRUE(spans.empty() || spans.back().start <= start);
    spans.push_back(
        {event.at("name"), event.at("cat"), event.at("tid"), start, start + duration});
    EXPECT_THAT(named_rows, Contains(spans.back().row));
  }
  EXPECT_GT(num_memory, 20);
  return spans;
}

// Checks that spans of the row for computation are nested, and spans of other rows do
// not overlap.
void expect_no_overlaps(const std::vector<Span>& spans) {
  std::map<int, std::vector<Span>> open;
  for (const auto& span : spans) {
    auto& around = open[span.row];
    while (!around.empty() && around.back().end <= span.start + kRounding) {
      around.pop_back();
    }
    if (!around.empty()) {
      EXPECT_EQ(span.row, 0) << span.name;
      EXPECT_TRUE(contains(around.back(), span)) << span.name;
    }
    around.push_back(span);
  }
}

// Returns the share of a step's time that is in spans within the step: the median over
// all steps, because the system can interrupt a rank between two spans.
double coverage(const std::vector<Span>& spans) {
  std::vector<double> shares;
  Span step;
  double covered_until = 0;
  for (const auto& span : spans) {
    if (is_step(span)) {
      step = span;
      covered_until = span.start;
      shares.push_back(0);
    } else if (
        span.row == 0 && contains(step, span) &&
        span.start + kRounding >= covered_until) {
      shares.back() += (span.end - span.start) / (step.end - step.start);
      covered_until = span.end;
    }
  }
  std::sort(shares.begin(), shares.end());
  return shares.empty() ? 0 : shares[shares.size() / 2];
}

std::map<std::string, int> count_names(const std::vector<Span>& spans) {
  std::map<std::string, int> counts;
  for (const auto& span : spans) {
    ++counts[span.name];
  }
  return counts;
}

// Trains for kSteps steps on digits, and returns the trace of each rank after checks
// that hold for every strategy.
std::vector<std::vector<Span>> train_with_trace(int num_ranks, const Arguments& flags) {
  const Scratch scratch;
  const auto limit = std::to_string(kSteps * 8 * num_ranks);
  const std::string out = scratch / "run";
  run_ok(with(
      {"train", "--data", "digits", "--model", "net", "--batch-size", "8", "--limit",
       limit, "--nproc", std::to_string(num_ranks), "--trace", "--out", out},
      flags));
  EXPECT_EQ(list_directory(out + "/trace").size(), static_cast<size_t>(num_ranks));
  std::vector<std::vector<Span>> traces;
  for (int rank = 0; rank < num_ranks; ++rank) {
    traces.push_back(read_trace(out, rank, num_ranks));
    const auto& spans = traces.back();
    expect_no_overlaps(spans);
    // Usually more than 0.99.
    EXPECT_GE(coverage(spans), 0.9);
    const auto counts = count_names(spans);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_THAT(counts, Contains(Pair("ProfilerStep#" + std::to_string(step), 1)));
    }
    for (const char* name : {"load batch", "update"}) {
      EXPECT_THAT(counts, Contains(Pair(name, kSteps)));
    }
    EXPECT_THAT(counts, Contains(Pair("evaluation", 1)));
    EXPECT_THAT(counts, Contains(Pair("save checkpoint", 2)));
  }
  return traces;
}

void expect_layers(const std::vector<Span>& spans) {
  const auto counts = count_names(spans);
  for (const char* layer : {"conv1", "conv2", "fc1", "fc2", "loss"}) {
    EXPECT_THAT(counts, Contains(Pair(std::string("forward ") + layer, kSteps)));
    EXPECT_THAT(counts, Contains(Pair(std::string("backward ") + layer, kSteps)));
  }
}

// Checks that each bucket has a span in every step, which starts during backward.
void expect_buckets(const std::vector<Span>& spans) {
  std::map<std::string, int> buckets;
  Span backward;
  for (const auto& span : spans) {
    if (span.row == 0 && span.name == "backward") {
      backward = span;
    }
    // Over shared memory, gradients go to the ranks that update them.
    const bool reduces =
        span.category == "all_reduce" || span.category == "reduce_scatter";
    if (span.row > 0 && reduces && span.name.rfind("bucket ", 0) == 0) {
      ++buckets[span.name];
      EXPECT_LE(span.start, backward.end);
    }
  }
  EXPECT_EQ(
      buckets, (std::map<std::string, int>{
                   {"bucket 0", kSteps}, {"bucket 1", kSteps}, {"bucket 2", kSteps}}));
  const auto counts = count_names(spans);
  EXPECT_THAT(counts, Contains(Pair("launch bucket 1", kSteps)));
  EXPECT_THAT(counts, Contains(Pair("wait bucket 1", kSteps)));
}

TEST(ProgramTrace, OneRankHasNoCommunication) {
  for (const char* executor : {"eager", "auto"}) {
    const auto traces = train_with_trace(1, {"--executor", executor});
    expect_layers(traces[0]);
    for (const auto& span : traces[0]) {
      EXPECT_EQ(span.row, 0);
    }
  }
}

TEST(ProgramTrace, RanksOverSharedMemoryHaveASpanPerLayerAndBucket) {
  for (const auto& spans :
       train_with_trace(3, {"--backend", "shm", "--executor", "eager"})) {
    expect_layers(spans);
    expect_buckets(spans);
  }
}

TEST(ProgramTrace, RanksOverGlooHaveASpanPerLayerAndBucket) {
  for (const auto& spans : train_with_trace(4, {"--backend", "gloo"})) {
    expect_layers(spans);
    expect_buckets(spans);
  }
}

TEST(ProgramTrace, ThreadRanksHaveASpanPerLayerAndBucket) {
  for (const auto& spans : train_with_trace(3, {"--rank-type", "thread"})) {
    expect_layers(spans);
    expect_buckets(spans);
  }
}

TEST(ProgramTrace, StagesOfAPipelineHaveASpanPerMessage) {
  const auto traces =
      train_with_trace(3, {"--strategy", "pipeline", "--accumulate", "3"});
  for (size_t stage = 0; stage < traces.size(); ++stage) {
    // The middle stage receives and sends the activations of each micro-batch.
    const int messages = (stage == 1 ? 2 : 1) * 3 * kSteps;
    EXPECT_THAT(count_names(traces[stage]), Contains(Pair("activations", messages)));
  }
}

TEST(ProgramTrace, AveragingHasASpanPerAverage) {
  const auto traces =
      train_with_trace(4, {"--strategy", "averaging", "--average-every", "2"});
  for (const auto& spans : traces) {
    expect_layers(spans);
    int averages = 0;
    for (const auto& span : spans) {
      averages +=
          span.row > 0 && span.category == "all_reduce" && span.name == "average" ? 1
                                                                                  : 0;
    }
    EXPECT_EQ(averages, kSteps / 2);
  }
}

TEST(ProgramTrace, AResumedRunTracesItsOwnFirstSteps) {
  const Scratch scratch;
  const Arguments command = {
      "train", "--data",  "digits", "--model", "simplenet",     "--batch-size",
      "8",     "--limit", "200",    "--out",   scratch / "run", "--trace"};
  run_ok(command);
  EXPECT_THAT(
      count_names(read_trace(scratch / "run", 0, 1)),
      Contains(Pair("ProfilerStep#19", 1)));
  run_ok(with(command, {"--resume", "auto", "--epochs", "2"}));
  const auto counts = count_names(read_trace(scratch / "run", 0, 1));
  EXPECT_THAT(counts, Contains(Pair("ProfilerStep#25", 1)));
  EXPECT_THAT(counts, Contains(Pair("load batch", 20)));
}

}  // namespace tandem::program_trace_test
