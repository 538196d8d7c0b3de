// What a user types, right and wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tandem::command_line_test {

using testing::HasSubstr;

TEST(Program, HelpNamesEveryCommand) {
  const auto help = tandem_run({"--help"});
  EXPECT_TRUE(help.status.ok());
  for (const char* command :
       {"train", "launch", "eval", "export", "data", "bench", "doctor"}) {
    EXPECT_THAT(help.output, HasSubstr(command));
  }
}

TEST(Program, TrainHelpNamesSettingsAndChoices) {
  const auto help = tandem_run({"train", "--help"});
  EXPECT_TRUE(help.status.ok());
  for (const char* text :
       {"--model", "--nproc", "--sync", "--set", "convnet_bn", "data_parallel",
        "adadelta", "one_cycle", "gloo", "digits that tandem draws"}) {
    EXPECT_THAT(help.output, HasSubstr(text));
  }
}

TEST(Program, LinksNoLibTorchAndNoLibcurl) {
  const auto libraries = run_command({"/usr/bin/ldd", program()});
  ASSERT_TRUE(libraries.status.ok());
  // With "lib", for the addresses in ldd's lines may hold any digits, "c10" too.
  EXPECT_THAT(libraries.output, Not(HasSubstr("libtorch")));
  EXPECT_THAT(libraries.output, Not(HasSubstr("libc10")));
  // Nor a network client, which costs as long to load.
  EXPECT_THAT(libraries.output, Not(HasSubstr("libcurl")));
  EXPECT_THAT(
      run_command({"/usr/bin/ldd", program("tandem-worker")}).output,
      HasSubstr("libtorch"));
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

}  // namespace tandem::command_line_test
