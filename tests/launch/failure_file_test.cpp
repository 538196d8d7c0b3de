#include "tandem/launch/failure_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tandem/base/error.h"
#include "tests/base/test_tools.h"

namespace tandem::failure_file_test {

class FailureFileTest : public ::testing::Test {
 protected:
  FailureFileTest() {
    setenv(name().c_str(), file_.variables().at(0).second.c_str(), 1);
  }
  ~FailureFileTest() override {
    for (const auto& variable : {name(), std::string("RANK"), kStore}) {
      unsetenv(variable.c_str());
    }
  }

  std::string name() const {
    return file_.variables().at(0).first;
  }
  bool report_as_rank(int rank, const std::exception& error) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv(kStore.c_str(), "unix:/nowhere", 1);
    return report_to_launcher(error);
  }
  FailureReport after(const std::exception& error) {
    EXPECT_TRUE(report_as_rank(3, error));
    return file_.read().back();
  }

  const std::string kStore = "TANDEM_STORE";
  const FailureFile file_;
};

TEST_F(FailureFileTest, HasReportsInOrderOfTime) {
  EXPECT_TRUE(file_.read().empty());
  EXPECT_TRUE(report_as_rank(3, DataError("first")));
  EXPECT_TRUE(report_as_rank(1, DataError("second")));
  const auto reports = file_.read();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].rank, 3);
  EXPECT_EQ(reports[0].message, "first");
  EXPECT_EQ(reports[1].rank, 1);
  EXPECT_EQ(reports[1].message, "second");
}

TEST_F(FailureFileTest, KeepsExitCodeAndMessage) {
  EXPECT_EQ(after(ConfigError("[grid] 4 ranks")).code, 2);
  EXPECT_EQ(after(ConfigError("[grid] 4 ranks")).message, "[grid] 4 ranks");
  EXPECT_EQ(after(DataError("no file")).code, 1);
  EXPECT_EQ(after(StoppedError("at step 5")).code, kExitStopped);
  EXPECT_EQ(after(StoppedError("at step 5")).message, "at step 5");
  EXPECT_EQ(after(std::runtime_error("")).message, "");
}

TEST_F(FailureFileTest, MarksOnlyCommErrorsAsConsequences) {
  EXPECT_TRUE(after(CommError("barrier", "reset")).consequence);
  EXPECT_FALSE(after(ConfigError("x")).consequence);
  EXPECT_FALSE(after(DataError("x")).consequence);
  EXPECT_FALSE(after(std::runtime_error("x")).consequence);
}

TEST_F(FailureFileTest, KeepsTheFirstLineOfAMessage) {
  EXPECT_EQ(after(std::runtime_error("bad shape\nframe #0")).message, "bad shape");
}

TEST_F(FailureFileTest, ReadsUnknownExitCodesAsOne) {
  std::ofstream(file_.variables().at(0).second) << "0 0 r x\n0 99 r y\n0 75 c z\n";
  const auto reports = file_.read();
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].code, 1);
  EXPECT_EQ(reports[1].code, 1);
  EXPECT_EQ(reports[2].code, kExitStopped);
}

TEST_F(FailureFileTest, SkipsLinesThatAreNoReports) {
  std::ofstream(file_.variables().at(0).second) << "\nx\n1\n1 2\n1 x r y\n1 2 r\n";
  EXPECT_TRUE(file_.read().empty());
}

TEST_F(FailureFileTest, GetsReportsOfProgramsThatAreNoRanks) {
  report_to_parent(ConfigError("x"));
  EXPECT_FALSE(report_to_launcher(ConfigError("y")));
  ASSERT_EQ(file_.read().size(), 1u);
  EXPECT_EQ(file_.read()[0].message, "x");
}

TEST_F(FailureFileTest, GetsNoReportsOfProgramsThatARankStarts) {
  setenv(kStore.c_str(), "unix:/nowhere", 1);
  report_to_parent(DataError("x"));
  EXPECT_TRUE(file_.read().empty());
}

TEST_F(FailureFileTest, ThrowsTheErrorOfTheFirstReport) {
  file_.throw_first("[plan] bench");
  report_to_parent(ConfigError("x"));
  report_to_parent(DataError("y"));
  expect_error<ConfigError>(
      [&] { file_.throw_first("[plan] bench"); }, {"[plan] bench: x"});
}

TEST(ReportToLauncher, FailsWithoutAFailureFile) {
  setenv("TANDEM_STORE", "unix:/nowhere", 1);
  EXPECT_FALSE(report_to_launcher(DataError("x")));
  unsetenv("TANDEM_STORE");
}

}  // namespace tandem::failure_file_test
