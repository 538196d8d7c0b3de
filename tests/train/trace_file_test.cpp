#include "tandem/train/report/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/base/files.h"
#include "tandem/comm/backends/thread.h"
#include "tests/scratch.h"

namespace tandem::trace_file_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const TraceOwner kOwner{3, 4, "gloo", 2'000'000};

// Returns the events of a trace that are spans.
std::vector<json> spans_in(const std::string& text) {
  std::vector<json> spans;
  const auto trace = json::parse(text);
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      spans.push_back(event);
    }
  }
  return spans;
}

TEST(TraceFile, HasTheSpanInMicrosecondsAndTheRankAsProcess) {
  Trace trace;
  trace.add({"backward conv2", "backward", 1'500, 250, 0});
  const auto spans = spans_in(trace_text(trace, kOwner));
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(
      spans[0], json::parse(R"({"ph": "X", "cat": "backward", "name": "backward conv2",
                               "pid": 3, "tid": 0, "ts": 2001.5, "dur": 0.25,
                               "args": {}})"));
}

TEST(TraceFile, HasTheRankWhereHtaSearchesIt) {
  const std::string text = trace_text(Trace(), kOwner);
  EXPECT_THAT(text, HasSubstr("\"rank\": 3,"));
  const auto owner = json::parse(text)["distributedInfo"];
  EXPECT_EQ(owner["rank"], 3);
  EXPECT_EQ(owner["world_size"], 4);
  EXPECT_EQ(owner["backend"], "gloo");
}

TEST(TraceFile, NamesTheProcessAndItsRows) {
  std::vector<std::string> names;
  const auto trace = json::parse(trace_text(Trace(), kOwner));
  for (const auto& event : trace["traceEvents"]) {
    EXPECT_EQ(event["ph"], "M");
    EXPECT_EQ(event["pid"], 3);
    if (event["args"].contains("name")) {
      names.push_back(event["args"]["name"]);
    }
  }
  EXPECT_THAT(names, ElementsAre("rank 3", "compute", "communication"));
}

TEST(TraceFile, OverlappingOperationsAreInDifferentRows) {
  Trace trace;
  const auto first = trace.start_operation("all_reduce", "bucket 0", 8);
  const auto second = trace.start_operation("all_reduce", "bucket 1", 16);
  first->end();
  const auto third = trace.start_operation("all_reduce", "bucket 2", 24);
  third->end();
  second->end();
  std::vector<int> rows;
  std::vector<int> bytes;
  for (const auto& span : spans_in(trace_text(trace, kOwner))) {
    rows.push_back(span["tid"]);
    bytes.push_back(span["args"]["bytes"]);
  }
  EXPECT_THAT(rows, ElementsAre(1, 2, 1));
  EXPECT_THAT(bytes, ElementsAre(8, 16, 24));
}

TEST(TraceFile, EventsAreInTheOrderOfTheirStart) {
  Trace trace;
  const auto operation = trace.start_operation("all_reduce", "bucket 0", 8);
  operation->end();
  const int64_t later = trace.now_ns() + 1'000;
  trace.add({"inner", "forward", later, 5, 0});
  trace.add({"outer", "forward", later, 6, 0});
  std::vector<std::string> names;
  for (const auto& span : spans_in(trace_text(trace, kOwner))) {
    names.push_back(span["name"]);
  }
  EXPECT_THAT(names, ElementsAre("bucket 0", "outer", "inner"));
}

TEST(TraceFile, AcceptsNamesWithAnyCharacters) {
  Trace trace;
  trace.add({"say \"hi\" \\ \n", "\xff", 0, 1, 0});
  const auto spans = spans_in(trace_text(trace, kOwner));
  EXPECT_EQ(spans[0]["name"], "say \"hi\" \\ \n");
}

TEST(TraceFile, WritesOneFilePerRankAndRemovesFilesOfMoreRanks) {
  const Scratch scratch;
  const std::string directory = scratch / "trace";
  for (const int size : {4, 3}) {
    run_ranks(size, [&](Communicator& comm) {
      Trace trace;
      trace.add({"of " + std::to_string(comm.rank()), "forward", 0, 1, 0});
      write_trace_files(trace, directory, comm);
    });
  }
  EXPECT_THAT(
      list_directory(directory),
      ElementsAre("rank-0.json", "rank-1.json", "rank-2.json"));
  for (int rank = 0; rank < 3; ++rank) {
    const auto text = read_file(directory + "/rank-" + std::to_string(rank) + ".json");
    EXPECT_EQ(json::parse(text)["distributedInfo"]["rank"], rank);
    EXPECT_EQ(spans_in(text).at(0)["name"], "of " + std::to_string(rank));
  }
}

}  // namespace tandem::trace_file_test
