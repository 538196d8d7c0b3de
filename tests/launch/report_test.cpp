#include "tandem/launch/report.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::report_test {

constexpr Milliseconds kLong{10'000};

class Report : public ::testing::Test {
 protected:
  FailureReport after(const std::exception& error) {
    leave_report(client_, 3, error);
    const auto report = find_report(server_, 3);
    EXPECT_TRUE(report);
    return report.value_or(FailureReport{});
  }

  StoreServer server_{"tcp:127.0.0.1:0"};
  StoreClient client_{server_.address(), kLong};
};

TEST_F(Report, IsMissingUntilTheRankLeavesIt) {
  EXPECT_EQ(find_report(server_, 3), std::nullopt);
  leave_report(client_, 3, DataError("x"));
  EXPECT_TRUE(find_report(server_, 3));
  EXPECT_EQ(find_report(server_, 1), std::nullopt);
}

TEST_F(Report, TellsTheExitCodeAndTheMessage) {
  EXPECT_EQ(after(ConfigError("[grid] 4 ranks")).code, 2);
  EXPECT_EQ(after(ConfigError("[grid] 4 ranks")).message, "[grid] 4 ranks");
  EXPECT_EQ(after(DataError("no file")).code, 1);
  EXPECT_EQ(after(StoppedError("at step 5")).code, kExitStopped);
  EXPECT_EQ(after(StoppedError("at step 5")).message, "at step 5");
  EXPECT_EQ(after(std::runtime_error("")).message, "");
}

TEST_F(Report, CallsOnlyCommErrorsAConsequence) {
  EXPECT_TRUE(after(CommError("barrier", "reset")).consequence);
  EXPECT_FALSE(after(ConfigError("x")).consequence);
  EXPECT_FALSE(after(DataError("x")).consequence);
  EXPECT_FALSE(after(std::runtime_error("x")).consequence);
}

TEST_F(Report, WithAnUnknownCodeCountsAsAFailure) {
  for (const auto* text : {"0r1 x", "99r1 x", "r1 x", "7 x", "xyz x", "75c x"}) {
    client_.set("failure/3", text);
    const auto report = find_report(server_, 3);
    ASSERT_TRUE(report) << text;
    EXPECT_EQ(report->code, *text == '7' && text[1] == '5' ? kExitStopped : 1) << text;
    EXPECT_EQ(report->message, "x") << text;
  }
}

TEST_F(Report, KeepsOneLine) {
  EXPECT_EQ(after(std::runtime_error("bad shape\nframe #0")).message, "bad shape");
}

TEST_F(Report, IsCutWhereItIsLong) {
  client_.set("failure/3", "1r1 " + std::string(5000, 'x'));
  EXPECT_EQ(find_report(server_, 3)->message, std::string(4096, 'x'));
}

TEST(ReportWithoutStore, IsDropped) {
  auto server = std::make_unique<StoreServer>("tcp:127.0.0.1:0");
  StoreClient client(server->address(), kLong);
  server.reset();
  EXPECT_NO_THROW(leave_report(client, 0, DataError("x")));
}

}  // namespace tandem::report_test
