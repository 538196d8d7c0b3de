// --device cuda on devices in main memory, as a user of a GPU sees it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tandem::far_device_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Runs `tandem` with a CUDA library whose GPUs are devices in main memory
// (tests/device/far_library.cpp).
CommandResult run_far_program(const Arguments& arguments, Variables variables = {}) {
  variables.push_back({"TANDEM_CUDA_LIBRARY", program("libfar_cuda.so")});
  return tandem_run(arguments, variables);
}

class FarProgramRuns : public testing::Test {
 protected:
  Arguments train(const Arguments& more) const {
    return with(
        {"train", "--model", "simplenet", "--limit", "320", "--eval-batch-size", "10",
         "--seed", "1", "--out", out_},
        more);
  }

  const Scratch scratch_;
  const std::string out_ = scratch_ / "run";
  const std::string summary_ = out_ + "/summary.json";
};

TEST_F(FarProgramRuns, TheSummaryHasTheDevicesPeakMemory) {
  checked(run_far_program(train({"--device", "cuda"})));
  const double mib = json_number(summary_, "peak_device_memory_mib");
  // Parameters, gradients, and 320 images of 784 bytes, with those of the test.
  EXPECT_GT(mib, (2 * 7850 * 4 + 320 * 784) / 1048576.0);
  EXPECT_LT(mib, 20);
  EXPECT_GT(json_number(summary_, "peak_memory_mib"), mib);
  remove_all(out_);
  // Two ranks have two copies of images, parameters and gradients.
  for (const auto& [ranks, device] :
       {std::pair("process", "cuda"), {"thread", "cuda"}, {"process", "cuda:1"}}) {
    checked(run_far_program(
        train({"--device", device, "--nproc", "2", "--rank-type", ranks})));
    EXPECT_NEAR(json_number(summary_, "peak_device_memory_mib"), 2 * mib, mib / 2)
        << ranks << " " << device;
    remove_all(out_);
  }
}

TEST_F(FarProgramRuns, TheSummaryOfACpuRunHasNoDeviceMemory) {
  checked(run_far_program(train({"--device", "cpu"})));
  EXPECT_THAT(read_file(summary_), Not(HasSubstr("device_memory")));
}

TEST_F(FarProgramRuns, CompareHasAColumnOfDeviceMemory) {
  const std::string near =
      "model = \"simplenet\"\nlimit = 320\nstrategy = \"sequential\"\n";
  replace_file(scratch_ / "far.toml", near + "device = \"cuda\"\n");
  replace_file(scratch_ / "near.toml", near);
  const auto compare = [&](std::vector<std::string> recipes, const std::string& out) {
    Arguments command = {"compare", "--out", scratch_ / out, "--repeat", "2"};
    for (const auto& recipe : recipes) {
      command.push_back(scratch_ / (recipe + ".toml"));
    }
    return run_far_program(command);
  };
  const auto both = checked(compare({"far", "near"}, "both"));
  EXPECT_THAT(both.output, HasSubstr("MiB  GPU MiB  tutorial\n"));
  const auto table = read_file(scratch_ / "both/table.md");
  EXPECT_THAT(
      table, testing::ContainsRegex("far \\|.*\\| [0-9]+ \\| [0-9]+ \\| - \\|"));
  EXPECT_THAT(table, testing::ContainsRegex("near \\|.*\\| [0-9]+ \\| - \\| - \\|"));
  EXPECT_NE(
      read_file(scratch_ / "both/report.html").find("Peak GPU memory"),
      std::string::npos);
  EXPECT_THAT(compare({"near"}, "cpu").output, Not(HasSubstr("GPU MiB")));
}

TEST_F(FarProgramRuns, TooLittleDeviceMemoryIsOneLine) {
  for (const char* ranks : {"1", "2"}) {
    const auto result = run_far_program(
        train({"--device", "cuda", "--batch-size", "160", "--nproc", ranks}),
        {{"FAR_CAPACITY_BYTES", "600000"}});
    EXPECT_EQ(result.status.code, 1);
    EXPECT_THAT(
        result.errors, AllOf(
                           testing::ContainsRegex(
                               "\\[device\\] xpu:[01] does not have enough memory: "),
                           HasSubstr(" MiB was requested and "),
                           HasSubstr("lower --batch-size from 160 to 80")));
    remove_all(out_);
  }
}

TEST_F(FarProgramRuns, TheRecipeForGpusTrainsAsTheRecipeForCpus) {
  const auto losses = [&](const std::string& recipe) {
    const auto result = checked(run_far_program(
        {"train", source_dir() + "/recipes/" + recipe + ".toml", "--data", "digits",
         "--limit", "200", "--epochs", "1", "-g", "2", "--log-every", "1", "--executor",
         "eager", "--backend", "auto"}));
    return result.output.substr(0, result.output.find("Training complete"));
  };
  const std::string far = losses("amp-nccl");
  EXPECT_THAT(far, HasSubstr("Epoch [1/1], Step [1/1], Loss: "));
  EXPECT_EQ(far.substr(far.find("Epoch")), [&] {
    const std::string near = losses("amp-fp16");
    return near.substr(near.find("Epoch"));
  }());
}

TEST_F(FarProgramRuns, PrintsTheDriversErrorInOneLine) {
  const auto result =
      run_far_program(train({"--device", "cuda"}), {{"FAR_WHY_NONE", "no driver"}});
  expect_exit(result, 2, {"there is no usable GPU: no driver; fix"});
}

TEST_F(FarProgramRuns, NcclNeedsAGpuForEachRank) {
  const auto result =
      run_far_program(train({"--device", "cuda", "--nproc", "2", "--backend", "nccl"}));
  expect_exit(
      result, 2, {"backend nccl is not possible: ranks 0 and 1 share a device"});
}

TEST_F(FarProgramRuns, DoctorListsTheDevices) {
  const auto result = run_far_program({"doctor"});
  expect_parts(result.output, {"ok       CUDA: ", "\"far device\""});
}

// The last line "Test set: ...".
std::string last_test(const std::string& output) {
  const size_t begin = output.rfind("Test set: ");
  return begin == std::string::npos
             ? "(no test)"
             : output.substr(begin, output.find('(', begin) - begin);
}

TEST_F(FarProgramRuns, EvalHasTheNumbersOfTheCpu) {
  const auto trained = checked(run_far_program(train({"--device", "cuda"})));
  const auto eval = [&](const std::string& device, const Variables& variables = {}) {
    return run_far_program(
        {"eval", "--checkpoint", out_, "--limit", "320", "--batch-size", "64",
         "--device", device},
        variables);
  };
  const auto far = checked(eval("cuda:1"));
  EXPECT_EQ(last_test(far.output), last_test(eval("cpu").output));
  EXPECT_EQ(last_test(far.output), last_test(trained.output));
  const auto small = eval("cuda", {{"FAR_CAPACITY_BYTES", "150000"}});
  expect_exit(small, 1, {"lower --batch-size from 64 to 32"});
  const auto missing = eval("cuda:7");
  expect_exit(missing, 2, {"device is cuda:7, expected cuda:0 to cuda:3"});
}

TEST_F(FarProgramRuns, BenchStepRunsOnTheDeviceAndWaits) {
  const auto bench = [&](const std::string& device) {
    const auto result = checked(run_far_program(
        {"bench", "step", "--model", "simplenet", "--data", "digits", "--steps", "2",
         "--warmup", "1", "--json", "--device", device},
        {{"FAR_WAIT_MS", "1000"}}));
    return nlohmann::json::parse(result.output, nullptr, false);
  };
  const auto far = bench("cuda");
  EXPECT_EQ(far.value("device", ""), "xpu:0");
  EXPECT_EQ(far.value("executor", ""), "eager");
  // This is no measure of speed: each step sleeps this long.
  EXPECT_GE(far.value("p10", 0.0), 1000);
  EXPECT_EQ(bench("cpu").value("device", ""), "cpu");
}

TEST_F(FarProgramRuns, BenchOptimizerRunsOnTheDeviceAndWaits) {
  const auto result = checked(run_far_program(
      {"bench", "optimizer", "--parameters", "1000", "--repeats", "1", "--optimizers",
       "adadelta", "--json", "--device", "cuda"},
      {{"FAR_WAIT_MS", "100"}}));
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json.at("device"), "xpu:0");
  const auto& row = json.at("results").at(0);
  EXPECT_EQ(row.at("bytes"), 1000 * 4 * 7);
  // Each figure is the mean of 20 updates with one wait.
  EXPECT_GE(row.at("ms").get<double>(), 100.0 / 20);
  EXPECT_GE(row.at("memcpy_ms").get<double>(), 100.0 / 20);
}

}  // namespace tandem::far_device_test
