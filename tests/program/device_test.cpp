// --device and --backend nccl on hosts without a GPU: one line names the missing part.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "tandem/base/files.h"
#include "tests/places.h"

namespace tandem::device_test {

using testing::HasSubstr;
using testing::Not;

bool built_for_cuda() {
  return file_exists(program("libtandem_cuda.so"));
}

class Devices : public testing::Test {
 protected:
  void SetUp() override {
    if (file_exists("/dev/nvidiactl") || file_exists("/dev/dxg")) {
      GTEST_SKIP() << "this host has a GPU";
    }
  }
};

TEST_F(Devices, CudaNamesTheMissingPart) {
  for (const std::string ranks : {"1", "3"}) {
    const auto result = tandem_run(
        {"train", "--data", "digits", "--limit", "100", "--device", "cuda", "--nproc",
         ranks});
    expect_error_line(
        result, 2,
        {"[device]", "--device cpu",
         built_for_cuda() ? "there is no usable GPU: CUDA driver version"
                          : "this build computes on CPUs only"});
  }
}

TEST_F(Devices, EvalAndBenchPrintTheSameError) {
  const std::vector<std::vector<std::string>> commands = {
      {"eval", "--checkpoint", "/nowhere", "--device"},
      {"bench", "step", "--device"},
      {"bench", "optimizer", "--device"}};
  for (auto command : commands) {
    command.emplace_back("cuda");
    const auto result = tandem_run(command);
    expect_exit(
        result, 2,
        {built_for_cuda()
             ? "there is no usable GPU: CUDA driver version"
             : "[device] device is cuda, but this build computes on CPUs only"});
    command.back() = "gpu";
    EXPECT_THAT(tandem_run(command).errors, HasSubstr("--device"));
    EXPECT_EQ(tandem_run(command).status.code, 2);
  }
}

TEST_F(Devices, AutoUsesTheCpuAndIsTheDefault) {
  const auto train = [](const Arguments& more) {
    return tandem_run(with(
        {"train", "--data", "digits", "--model", "lenet3x3", "--limit", "200",
         "--epochs", "1", "--nproc", "2"},
        more));
  };
  const auto chosen = checked(train({"--device", "auto"}));
  EXPECT_THAT(chosen.output, HasSubstr("Accuracy"));
  EXPECT_THAT(chosen.errors, Not(HasSubstr("[device]")));
  checked(train({}));
}

TEST_F(Devices, TheRecipeForGpusNamesTheRecipeForCpus) {
  const std::string recipes = source_dir() + "/recipes/";
  const auto result = tandem_run(
      {"train", recipes + "amp-nccl.toml", "--data", "digits", "--limit", "300"});
  expect_error_line(
      result, 2,
      {built_for_cuda() ? "there is no usable GPU" : "this build computes on CPUs only",
       "; without a GPU use the recipe " + recipes + "amp-fp16.toml\n"});
  const Scratch scratch;
  const auto compared = run_ok(
      {"compare", recipes + "amp-nccl.toml", recipes + "amp-fp16.toml", "--data",
       "digits", "--limit", "300", "--epochs", "1", "--out", scratch / "out"});
  expect_parts(
      compared.output,
      {"amp-nccl skipped: ", "use the recipe", "2 recipes: 1 done, 1 skipped."});
}

TEST_F(Devices, NcclNeedsRanksOnGpus) {
  const auto result = tandem_run(
      {"train", "--data", "digits", "--limit", "100", "--backend", "nccl", "--nproc",
       "2"});
  expect_exit(result, 2, {"backend nccl", "--device cuda"});
}

TEST_F(Devices, DoctorListsGpus) {
  const auto result = run_ok({"doctor"});
  EXPECT_THAT(
      result.output, HasSubstr(
                         built_for_cuda() ? "\"no_gpu\": \"CUDA driver version"
                                          : "GPUs: none, this build computes on CPUs"));
}

}  // namespace tandem::device_test
