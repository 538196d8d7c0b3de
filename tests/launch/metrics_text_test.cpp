#include "tandem/launch/status/status_server.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "exposition.h"
#include "tandem/launch/status/run_status.h"

namespace tandem::metrics_text_test {

using testing::HasSubstr;
using testing::Not;

RunStatus three_ranks() {
  RunStatus status;
  status.collected_at = 1000;
  status.restarts = 2;
  status.world_size = 3;
  status.ranks.resize(3);
  for (int rank = 0; rank < 3; ++rank) {
    auto& one = status.ranks[static_cast<size_t>(rank)];
    one.rank = rank;
    one.host = rank < 2 ? "a" : "b";
    one.pid = 10 + rank;
    one.activity = Activity::training;
    one.epoch = 5;
    one.step = 50 + rank;
    one.step_seconds = 3 - rank;
    one.loss = 0.25;
    one.learning_rate = 1e-05;
    one.samples_per_second = 812.5;
  }
  status.ranks[0].checkpoint_step = 40;
  status.ranks[0].checkpoint_seconds = 30;
  status.ranks[1].operation = "all_reduce #9 (loss)";
  status.ranks[1].waiting_seconds = 7.5;
  status.ranks[2].activity = Activity::saving;
  status.ranks[2].suspended = true;
  return status;
}

TEST(MetricsText, HasTheProgressOfTheRun) {
  auto samples = samples_of(metrics_text(three_ranks()));
  EXPECT_EQ(samples.at("tandem_ranks"), 3);
  EXPECT_EQ(samples.at("tandem_restarts_total"), 2);
  EXPECT_EQ(samples.at("tandem_step"), 52);
  EXPECT_EQ(samples.at("tandem_last_step_timestamp_seconds"), 999);
  EXPECT_EQ(samples.at("tandem_epoch"), 5);
  EXPECT_EQ(samples.at("tandem_loss"), 0.25);
  EXPECT_EQ(samples.at("tandem_learning_rate"), 1e-05);
  EXPECT_EQ(samples.at("tandem_samples_per_second"), 812.5);
  EXPECT_EQ(samples.at("tandem_checkpoint_step"), 40);
  EXPECT_EQ(samples.at("tandem_checkpoint_timestamp_seconds"), 970);
}

TEST(MetricsText, HasTheWaitAndTheActivityOfEachRank) {
  auto samples = samples_of(metrics_text(three_ranks()));
  const auto of = [](const std::string& name, const std::string& labels) {
    return "tandem_rank_" + name + "{" + labels + "}";
  };
  EXPECT_EQ(samples.at(of("waiting_seconds", "rank=\"0\",host=\"a\"")), 0);
  EXPECT_EQ(samples.at(of("waiting_seconds", "rank=\"1\",host=\"a\"")), 7.5);
  EXPECT_EQ(samples.at(of("suspended", "rank=\"1\",host=\"a\"")), 0);
  EXPECT_EQ(samples.at(of("suspended", "rank=\"2\",host=\"b\"")), 1);
  const std::string rank = "rank=\"2\",host=\"b\",activity=";
  EXPECT_EQ(samples.at(of("activity", rank + "\"saving\"")), 1);
  EXPECT_EQ(samples.at(of("activity", rank + "\"training\"")), 0);
  EXPECT_EQ(samples.at(of("activity", rank + "\"loading data\"")), 0);
}

TEST(MetricsText, OmitsUnknownValues) {
  RunStatus status;
  status.world_size = 4;
  EXPECT_EQ(samples_of(metrics_text(status)).size(), 2u);
  status.ranks.resize(1);
  const auto text = metrics_text(status);
  const auto samples = samples_of(text);
  EXPECT_EQ(samples.at("tandem_ranks"), 4);
  for (const char* name :
       {"tandem_step", "tandem_loss", "tandem_checkpoint", "tandem_epoch"}) {
    EXPECT_THAT(text, Not(HasSubstr(name)));
  }
}

TEST(MetricsText, WritesValuesThatAreNotFinite) {
  auto status = three_ranks();
  status.ranks[0].loss = std::nan("");
  EXPECT_TRUE(std::isnan(samples_of(metrics_text(status)).at("tandem_loss")));
  EXPECT_THAT(metrics_text(status), HasSubstr("\ntandem_loss NaN\n"));
  status.ranks[0].loss = std::numeric_limits<double>::infinity();
  EXPECT_THAT(metrics_text(status), HasSubstr("\ntandem_loss +Inf\n"));
  status.ranks[0].loss *= -1;
  EXPECT_THAT(metrics_text(status), HasSubstr("\ntandem_loss -Inf\n"));
}

TEST(MetricsText, EscapesLabels) {
  auto status = three_ranks();
  status.ranks[1].host = "a\\b\"c\nd";
  auto samples = samples_of(metrics_text(status));
  EXPECT_EQ(
      samples.at(R"(tandem_rank_waiting_seconds{rank="1",host="a\\b\"c\nd"})"), 7.5);
}

TEST(RunStatus, IsTheSameAfterJson) {
  const auto status = three_ranks();
  const auto copy = run_status_from_json(to_json(status));
  ASSERT_TRUE(copy);
  EXPECT_EQ(metrics_text(*copy), metrics_text(status));
  EXPECT_EQ(copy->ranks[1].operation, "all_reduce #9 (loss)");
}

TEST(RunStatus, RejectsOtherJson) {
  for (const char* text :
       {"", "[]", "{}", "{\"ranks\": []}", "null",
        "{\"collected_at\": \"x\", \"restarts\": 0, \"world_size\": 1, \"ranks\": "
        "[]}"}) {
    EXPECT_FALSE(run_status_from_json(text)) << text;
  }
}

}  // namespace tandem::metrics_text_test
