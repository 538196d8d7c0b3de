// What a user types, right and wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tandem {
namespace {

using testing::HasSubstr;

TEST(Program, HelpNamesEveryCommand) {
  const auto help = tandem_run({"--help"});
  EXPECT_TRUE(help.status.ok());
  for (const char* command : {"train", "launch", "eval", "data", "bench", "doctor"}) {
    EXPECT_THAT(help.output, HasSubstr(command));
  }
}

TEST(Program, TrainHelpNamesSettingsAndChoices) {
  const auto help = tandem_run({"train", "--help"});
  EXPECT_TRUE(help.status.ok());
  for (const char* text :
       {"--model", "--nproc", "--sync", "--set", "convnet_bn", "data_parallel",
        "adadelta", "one_cycle", "gloo"}) {
    EXPECT_THAT(help.output, HasSubstr(text));
  }
}

TEST(Program, LinksNoLibTorch) {
  const auto libraries = run_command({"/usr/bin/ldd", program()});
  ASSERT_TRUE(libraries.status.ok());
  EXPECT_THAT(libraries.output, Not(HasSubstr("torch")));
  EXPECT_THAT(libraries.output, Not(HasSubstr("c10")));
  EXPECT_THAT(
      run_command({"/usr/bin/ldd", program("tandem-worker")}).output,
      HasSubstr("torch"));
}

// Misuse: one line that names the culprit and the remedy, and the exit code.
struct Misuse {
  std::vector<std::string> arguments;
  int code;
  std::vector<std::string> says;
};

void PrintTo(const Misuse& misuse, std::ostream* out) {
  for (const auto& argument : misuse.arguments) {
    *out << argument << " ";
  }
}

class Misused : public testing::TestWithParam<Misuse> {};

TEST_P(Misused, IsOneLineThatHelps) {
  const Scratch scratch;
  auto arguments = GetParam().arguments;
  for (auto& argument : arguments) {
    if (argument == "SCRATCH") {
      argument = scratch / "out";
    }
  }
  const auto result = tandem_run(arguments, {{"TANDEM_DATA", "/nonexistent"}});
  EXPECT_EQ(result.status.code, GetParam().code) << result.errors;
  EXPECT_EQ(result.status.signal, 0);
  for (const auto& text : GetParam().says) {
    EXPECT_THAT(result.errors, HasSubstr(text));
  }
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1)
      << result.errors;
}

INSTANTIATE_TEST_SUITE_P(
    Program, Misused,
    testing::Values(
        Misuse{{"trian"}, 2, {"trian", "'train'"}},
        Misuse{{"train", "--modle", "net"}, 2, {"--modle", "'--model'"}},
        Misuse{{"train", "--model", "nett", "--limit", "64"}, 2, {"nett", "'net'"}},
        Misuse{{"train", "--nproc", "2", "--model", "nett"}, 2, {"nett", "'net'"}},
        Misuse{{"train", "--epochs", "x"}, 2, {"--epochs", "'x'", "whole number"}},
        Misuse{{"train", "--batch-size", "0"}, 2, {"batch_size is 0"}},
        Misuse{{"train", "--nproc", "0"}, 2, {"nproc is '0'", "1 to 4096"}},
        Misuse{{"train", "--set", "bach_size=3"}, 2, {"bach_size", "'batch_size'"}},
        Misuse{{"train", "--sync", "overlp", "--limit", "64"}, 2, {"'overlap'"}},
        Misuse{{"train", "--optimizer", "sdg", "--limit", "64"}, 2, {"'sgd'"}},
        Misuse{
            {"train", "--ranks", "thread", "--backend", "gloo", "--nproc", "2"},
            2,
            {"gloo", "thread"}},
        Misuse{
            {"train", "--strategy", "sequential", "--nproc", "2", "--limit", "64"},
            2,
            {"sequential", "--nproc 1"}},
        Misuse{{"train", "nosuch.toml"}, 1, {"nosuch.toml"}},
        Misuse{{"train", "--data", "nosuch"}, 2, {"nosuch", "digits"}},
        Misuse{{"train", "--data", "/proc"}, 1, {"/proc", "train-images"}},
        Misuse{{"train", "--limit", "64", "--out", "/proc/no"}, 1, {"/proc/no"}},
        Misuse{
            {"train", "--limit", "64", "--resume", "/nosuch", "--out", "SCRATCH"},
            1,
            {"/nosuch"}},
        Misuse{{"train", "--resume", "auto"}, 2, {"--out"}},
        Misuse{{"eval"}, 2, {"--checkpoint"}},
        Misuse{{"eval", "--checkpoint", "/nosuch"}, 1, {"/nosuch"}},
        Misuse{{"data", "chek", "digits"}, 2, {"'check'"}},
        Misuse{{"launch"}, 2, {"no program"}},
        Misuse{{"launch", "nosuchprogram"}, 2, {"nosuchprogram", "PATH"}},
        Misuse{{"launch", "--nproc-per-node", "none", "true"}, 2, {"none"}}));

TEST(Program, RecipeErrorsNameFileAndLine) {
  const Scratch scratch;
  const auto recipe = scratch / "bad.toml";
  replace_file(recipe, "format_version = 1\nmodel = \"net\"\nepoch = 3\n");
  auto result = tandem_run({"train", recipe});
  EXPECT_EQ(result.status.code, 2);
  EXPECT_THAT(result.errors, HasSubstr(recipe + ":3"));
  EXPECT_THAT(result.errors, HasSubstr("'epochs'"));
  replace_file(recipe, "model = \"net\"\nepochs = \"three\"\n");
  result = tandem_run({"train", recipe});
  EXPECT_EQ(result.status.code, 2);
  EXPECT_THAT(result.errors, HasSubstr(recipe + ":2"));
}

TEST(Program, WrongEnvironmentNamesTheVariable) {
  const auto missing = tandem_run({"train", "--limit", "64"}, {{"RANK", "0"}});
  EXPECT_EQ(missing.status.code, 2);
  EXPECT_THAT(missing.errors, HasSubstr("WORLD_SIZE"));
}

TEST(Program, DoctorEndsEachFindingWithARemedy) {
  const auto result = tandem_run({"doctor"}, {{"TANDEM_DATA", "/nonexistent"}});
  EXPECT_TRUE(result.status.ok()) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("instruction sets"));
  EXPECT_THAT(result.output, HasSubstr("libtorch"));
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("look ", 0) == 0) {
      std::getline(lines, line);
      EXPECT_THAT(line, HasSubstr("mend: "));
    }
  }
}

}  // namespace
}  // namespace tandem
