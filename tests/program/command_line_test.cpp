// Valid and invalid command lines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "program.h"
#include "tests/graph/fixture_files.h"

namespace tandem::command_line_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(Program, HelpNamesEveryCommand) {
  const auto help = run_ok({"--help"});
  for (const char* command :
       {"train", "launch", "eval", "predict", "export", "data", "model", "recipes",
        "bench", "doctor", "  top "}) {
    EXPECT_THAT(help.output, HasSubstr(command));
  }
}

TEST(Program, TrainHelpNamesSettingsAndChoices) {
  const auto help = run_ok({"train", "--help"});
  for (const char* text :
       {"--model", "--nproc", "--sync", "--set", "convnet_bn", "data_parallel",
        "adadelta", "one_cycle", "gloo", "digits drawn by tandem"}) {
    EXPECT_THAT(help.output, HasSubstr(text));
  }
}

TEST(ModelCommand, PrintsModulesShapesAndParameters) {
  const auto result = run_ok({"model", "simplenet"});
  EXPECT_EQ(
      result.output,
      "SimpleNet(\n"
      "  (fc): Linear(in_features=784, out_features=10, bias=True)\n"
      ")\n\n"
      "Layer                    Operator               Output shape           "
      "Parameters "
      "  FLOPs/sample\n"
      "input                                           [N, 1, 28, 28]                  "
      "0 "
      "             0\n"
      "flatten_0                flatten                [N, 784]                        "
      "0 "
      "             0\n"
      "fc                       linear                 [N, 10]                      "
      "7850 "
      "         15680\n"
      "Total parameters: 7850\n"
      "Total FLOPs per sample: 15680\n"
      "The compiled executor runs this model as a chain of layers.\n");
}

TEST(ModelCommand, PrintsTheProgramOfANetwork) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "residual-2.15.0.pt2");
  const auto result =
      run_ok({"model", path, "--dump-program", "--profile", "--batch-size", "4"});
  EXPECT_THAT(
      result.output,
      AllOf(
          ContainsRegex(
              "\nforward +stem +convolution 3 x 3[^\n]* 4x[0-9x]+ +[0-9.]+ %"),
          HasSubstr("\nbackward "), HasSubstr("aten::nll_loss_forward"),
          HasSubstr("loss ")));
  const auto chain = tandem_run(
      {"model", unpack_fixture(scratch, "net-2.15.0.pt2"), "--dump-program"});
  EXPECT_THAT(chain.errors, HasSubstr("is a chain of layers"));
  EXPECT_THAT(
      tandem_run({"model", path, "--profile"}).errors, HasSubstr("--dump-program"));
}

TEST(ModelCommand, MarksTheNodesOfANetworkFileWithoutACompiledKernel) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "residual-2.15.0.pt2");
  const auto result = run_ok({"model", path});
  EXPECT_THAT(
      result.output,
      AllOf(
          HasSubstr("stem                     conv2d "), HasSubstr("add *"),
          HasSubstr("The compiled executor records the operators of this model, "),
          ContainsRegex("2 x aten::add has no compiled kernel\n +first add "
                        "\\(networks.py:[0-9]+: "),
          Not(HasSubstr("[] "))));
  const auto error = tandem_run({"model", path, "--classes", "3"});
  EXPECT_THAT(error.errors, HasSubstr("--input and --classes do not apply"));
}

TEST(ModelCommand, AcceptsInputShapeAndNumberOfClasses) {
  const auto result =
      run_ok({"model", "convnet_bn", "--input", "3x32x32", "--classes", "100"});
  expect_parts(
      result.output, {"(0): Conv2d(3, 16, kernel_size=(5, 5), stride=(1, 1), "
                      "padding=(2, 2))\n",
                      "[N, 3, 32, 32] ", "[N, 100] "});
}

TEST(ModelCommand, CountsTheBorderOfLenet3x3AsInput) {
  EXPECT_THAT(tandem_run({"model", "lenet3x3"}).output, HasSubstr(" [N, 1, 32, 32] "));
}

TEST(RecipesCommand, ListsNameTutorialAndDescriptionOfEachRecipe) {
  const auto list = run_ok({"recipes", source_dir() + "/recipes"});
  for (const auto& name : list_directory(source_dir() + "/recipes")) {
    const auto stem = name.substr(0, name.find(".toml"));
    EXPECT_THAT(
        "\n" + list.output,
        testing::ContainsRegex("\n" + stem + " +(00[0-4]|-) +[A-Za-z9].+\n"));
  }
  const auto missing = tandem_run({"recipes", "/nonexistent"});
  expect_exit(missing, 1, {"/nonexistent"});
}

// The sample and the batch of tutorial 003.
TEST(DataInfo, PrintsTheShapesOfASampleAndABatch) {
  const Scratch scratch;
  run_ok(
      {"data", "make", "digits", "--out", scratch / "digits", "--train", "100",
       "--test", "20"});
  const auto result = run_ok({"data", "info", scratch / "digits"});
  expect_parts(
      result.output, {"train: 100 samples of 1x28x28, uint8; 10 classes\n",
                      "\n  batch: inputs [64, 1, 28, 28] float32, targets [64] int64\n",
                      "\ntest: 20 samples of 1x28x28, uint8; 10 classes\n",
                      "\n  batch: inputs [20, 1, 28, 28] float32, targets [20] int64\n",
                      "\n--mean 0."});
}

TEST(Program, LinksNoLibTorchAndNoLibraryOfFetch) {
  const auto libraries = checked(run_command({"/usr/bin/ldd", program()}));
  // With "lib", since the addresses in the lines of ldd may contain any digits, "c10"
  // too.
  EXPECT_THAT(libraries.output, Not(HasSubstr("libtorch")));
  EXPECT_THAT(libraries.output, Not(HasSubstr("libc10")));
  // The libraries of `data fetch` take time to load too.
  EXPECT_THAT(libraries.output, Not(HasSubstr("libcurl")));
  EXPECT_THAT(libraries.output, Not(HasSubstr("libarchive")));
  EXPECT_THAT(
      run_command({"/usr/bin/ldd", program("tandem-worker")}).output,
      HasSubstr("libtorch"));
}

TEST(Program, DoctorListsEachBackendWithAReasonIfItIsMissing) {
  const auto all = tandem_run({"doctor"}).output;
  for (const char* backend :
       {"shm", "shm\\+gloo", "gloo", "mpi", "nccl", "thread", "rpc over shm",
        "rpc over TCP"}) {
    EXPECT_THAT(
        all,
        testing::ContainsRegex("\n" + std::string(backend) + " +(yes|no)  +[A-Za-z]"));
  }
  const auto without = tandem_run({"doctor"}, {{"PATH", "/nonexistent"}}).output;
  EXPECT_THAT(
      without, testing::ContainsRegex("\nmpi +no   (mpirun is missing|this build)"));
}

TEST(Program, DoctorPrintsAFixForEachWarning) {
  const auto result = run_ok({"doctor"}, {{"TANDEM_DATA", "/nonexistent"}});
  expect_parts(result.output, {"instruction sets", "libtorch"});
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("warning: ", 0) == 0) {
      std::getline(lines, line);
      EXPECT_THAT(line, HasSubstr("fix: "));
    }
  }
}

}  // namespace tandem::command_line_test
