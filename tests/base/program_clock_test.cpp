#include "tandem/base/program_clock.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tandem/base/text.h"

namespace tandem::program_clock_test {

// A launcher that started this much earlier than this process.
class LaunchedEarlier {
 public:
  explicit LaunchedEarlier(double seconds) : name_(program_start_variable().first) {
    const auto start = parse_number<double>(program_start_variable().second);
    setenv(name_.c_str(), std::to_string(start.value() - seconds).c_str(), 1);
  }
  ~LaunchedEarlier() {
    unsetenv(name_.c_str());
  }

 private:
  std::string name_;
};

TEST(ProgramClock, CountsFromTheStartOfTheProcess) {
  const double first = program_seconds();
  EXPECT_GE(first, 0);
  EXPECT_GE(program_seconds(), first);
}

TEST(ProgramClock, CountsFromTheStartOfTheLauncher) {
  const double alone = program_seconds();
  const LaunchedEarlier launcher(1000);
  EXPECT_GE(program_seconds(), alone + 1000 - 1e-3);
}

// A launcher that a launcher started begins another run.
TEST(ProgramClock, PassesTheStartOfTheProcessToRanks) {
  const auto own = program_start_variable();
  const LaunchedEarlier launcher(1000);
  EXPECT_EQ(program_start_variable(), own);
}

TEST(ProgramClock, IgnoresAVariableThatIsNotANumber) {
  const auto name = program_start_variable().first;
  const double before = program_seconds();
  setenv(name.c_str(), "yesterday", 1);
  const double with_it = program_seconds();
  unsetenv(name.c_str());
  EXPECT_GE(with_it, before);
  EXPECT_LE(with_it, program_seconds());
}

}  // namespace tandem::program_clock_test
