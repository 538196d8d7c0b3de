// --device cuda on devices in main memory: what a user of a GPU sees.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "far_program.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class FarProgramRuns : public testing::Test {
 protected:
  std::vector<std::string> train(const std::vector<std::string>& more) const {
    std::vector<std::string> command = {
        "train", "--model", "simplenet", "--limit", "320", "--eval-batch-size",
        "10",    "--seed",  "1",         "--out",   out_};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  const FarProgram program_;
  const Scratch scratch_;
  const std::string out_ = scratch_ / "run";
  const std::string summary_ = out_ + "/summary.json";
};

TEST_F(FarProgramRuns, TheSummaryHasTheDevicesPeakMemory) {
  const auto one = program_.run(train({"--device", "cuda"}));
  ASSERT_TRUE(one.status.ok()) << one.errors;
  const double mib = json_number(summary_, "peak_device_memory_mib");
  // Parameters, gradients, and 320 images of 784 bytes with the test's.
  EXPECT_GT(mib, (2 * 7850 * 4 + 320 * 784) / 1048576.0);
  EXPECT_LT(mib, 20);
  EXPECT_GT(json_number(summary_, "peak_memory_mib"), mib);
  remove_all(out_);
  // Two of each: images, parameters and gradients.
  for (const auto& [ranks, device] :
       {std::pair("process", "cuda"), {"thread", "cuda"}, {"process", "cuda:1"}}) {
    const auto two =
        program_.run(train({"--device", device, "--nproc", "2", "--ranks", ranks}));
    ASSERT_TRUE(two.status.ok()) << two.errors;
    EXPECT_NEAR(json_number(summary_, "peak_device_memory_mib"), 2 * mib, mib / 2)
        << ranks << " " << device;
    remove_all(out_);
  }
}

TEST_F(FarProgramRuns, OnTheCpuNoSummarySpeaksOfDevices) {
  ASSERT_TRUE(program_.run(train({"--device", "cpu"})).status.ok());
  EXPECT_THAT(read_file(summary_), Not(HasSubstr("device_memory")));
}

TEST_F(FarProgramRuns, CompareHasAColumnOfTheirMemory) {
  replace_file(
      scratch_ / "far.toml",
      "model = \"simplenet\"\nlimit = 320\nstrategy = \"sequential\"\ndevice = "
      "\"cuda\"\n");
  replace_file(
      scratch_ / "near.toml",
      "model = \"simplenet\"\nlimit = 320\nstrategy = \"sequential\"\n");
  const auto compare = [&](std::vector<std::string> recipes, const std::string& out) {
    std::vector<std::string> command = {
        "compare", "--out", scratch_ / out, "--repeat", "2"};
    for (const auto& recipe : recipes) {
      command.push_back(scratch_ / (recipe + ".toml"));
    }
    return program_.run(command);
  };
  const auto both = compare({"far", "near"}, "both");
  ASSERT_TRUE(both.status.ok()) << both.errors;
  EXPECT_THAT(both.output, HasSubstr("MiB  GPU MiB  document\n"));
  const auto table = read_file(scratch_ / "both/table.md");
  EXPECT_THAT(
      table, testing::ContainsRegex("far \\|.*\\| [0-9]+ \\| [0-9]+ \\| - \\|"));
  EXPECT_THAT(table, testing::ContainsRegex("near \\|.*\\| [0-9]+ \\| - \\| - \\|"));
  EXPECT_NE(
      read_file(scratch_ / "both/report.html").find("Peak GPU memory"),
      std::string::npos);
  EXPECT_THAT(compare({"near"}, "cpu").output, Not(HasSubstr("GPU MiB")));
}

TEST_F(FarProgramRuns, WithoutEnoughDeviceMemoryARunFailsWithOneLine) {
  for (const char* ranks : {"1", "2"}) {
    const auto result = program_.run(
        train({"--device", "cuda", "--batch-size", "160", "--nproc", ranks}),
        {{"FAR_CAPACITY_BYTES", "600000"}});
    EXPECT_EQ(result.status.code, 1);
    EXPECT_THAT(
        result.errors,
        AllOf(
            testing::ContainsRegex("\\[device\\] xpu:[01] has not enough memory: "),
            HasSubstr(" MiB was wanted and "),
            HasSubstr("lower --batch-size from 160 to 80")));
    remove_all(out_);
  }
}

}  // namespace
}  // namespace tandem
