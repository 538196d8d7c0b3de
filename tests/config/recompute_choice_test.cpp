#include "tandem/config/recompute_choice.h"

#include <gmock/gmock.h>

#include "tests/core/expect.h"

namespace tandem::recompute_choice_test {

using testing::ElementsAre;

RecomputeChoice choice(const std::string& recompute, const std::string& memory = "") {
  ExecOptions options;
  options.recompute = recompute;
  options.memory = memory;
  return recompute_choice(options);
}

TEST(RecomputeChoice, HasPatternsANumberOrALimit) {
  EXPECT_TRUE(choice("").is_none());
  EXPECT_THAT(choice("layer1.*,fc").patterns, ElementsAre("layer1.*", "fc"));
  EXPECT_EQ(choice("every:3").every, 3);
  EXPECT_EQ(choice("auto", "1000").memory, 1000);
  EXPECT_EQ(choice("auto", "1.5K").memory, 1536);
  EXPECT_EQ(choice("auto", "2G").memory, int64_t{2} << 30);
}

TEST(RecomputeChoice, RefusesBadValues) {
  const auto refuses = [](const std::string& recompute, const std::string& memory,
                          std::initializer_list<std::string> parts) {
    expect_error<ConfigError>([&] { (void)choice(recompute, memory); }, parts);
  };
  for (const char* every : {"every:0", "every:-1", "every:", "every:x", "every:1.5"}) {
    refuses(every, "", {every, "expected every:K with K of 1 or more", "--recompute"});
  }
  refuses("auto", "", {"recompute is auto and memory is not set", "add --memory"});
  refuses("a,,b", "", {"recompute has the entry ''"});
  for (const char* memory : {"0", "-1M", "M", "1X", "1e30G"}) {
    refuses("auto", memory, {"memory is '", memory, "such as 512M"});
  }
  refuses(
      "every:2", "1G", {"memory is '1G' and recompute is 'every:2', expected auto"});
}

}  // namespace tandem::recompute_choice_test
