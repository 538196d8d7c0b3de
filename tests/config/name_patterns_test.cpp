#include "tandem/config/name_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::name_patterns_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(NamePatterns, AreShellGlobsOnWholeNames) {
  const auto matches = [](const char* pattern, const char* name) {
    return matches_any({pattern}, name);
  };
  EXPECT_TRUE(matches("layer1.*", "layer1.0.conv1.weight"));
  EXPECT_TRUE(matches("*.bias", "layer1.0.bn1.bias"));
  EXPECT_TRUE(matches("conv?.weight", "conv1.weight"));
  EXPECT_TRUE(matches("conv[13].weight", "conv3.weight"));
  EXPECT_FALSE(matches("conv[13].weight", "conv2.weight"));
  EXPECT_FALSE(matches("layer1", "layer1.weight"));
  EXPECT_FALSE(matches("layer1.*", "layer10.weight"));
  EXPECT_FALSE(matches("weight", "conv1.weight"));
  EXPECT_FALSE(matches_any({}, "conv1.weight"));
  EXPECT_TRUE(matches_any({"fc.*", "conv1.*"}, "conv1.weight"));
}

TEST(NamePatterns, AreSeparatedByCommas) {
  EXPECT_THAT(parse_patterns("freeze", ""), IsEmpty());
  EXPECT_THAT(parse_patterns("freeze", "a.*"), ElementsAre("a.*"));
  EXPECT_THAT(parse_patterns("freeze", "a.*,b"), ElementsAre("a.*", "b"));
  for (const char* text : {",", "a.*,", ",a.*", "a,,b"}) {
    expect_error<ConfigError>(
        [&] { (void)parse_patterns("init_skip", text); },
        {"init_skip has the entry ''", "change --init-skip"});
  }
}

TEST(PatternFactors, TheFirstMatchCounts) {
  const auto factors =
      parse_pattern_factors("lr_factor", "fc.bias=3,fc.*=0.5,*.bias=1e-2");
  EXPECT_EQ(factor_of(factors, "fc.bias"), 3);
  EXPECT_EQ(factor_of(factors, "fc.weight"), 0.5);
  EXPECT_EQ(factor_of(factors, "conv.bias"), 0.01);
  EXPECT_EQ(factor_of(factors, "conv.weight"), 1);
  EXPECT_THAT(patterns_of(factors), ElementsAre("fc.bias", "fc.*", "*.bias"));
}

TEST(PatternFactors, AnEntryWithoutAFactorIsAnError) {
  for (const char* text :
       {"fc.*", "fc.*=", "=2", "fc.*=two", "fc.*=-1", "fc.*=inf", "fc.*=nan",
        "fc.*=1e38", "a=1,fc.*", "fc.*=0.1x"}) {
    expect_error<ConfigError>(
        [&] { (void)parse_pattern_factors("lr_factor", text); },
        {"lr_factor has the entry '", "PATTERN=FACTOR", "change --lr-factor"});
  }
}

TEST(NamePatterns, APatternWithoutMatchIsAnErrorWithTheNearestName) {
  const std::vector<std::string> names = {
      "conv1.weight", "layer1.0.conv1.weight", "layer2.0.conv1.weight", "fc.bias"};
  EXPECT_NO_THROW(check_patterns_match("freeze", {"*", "layer?.*"}, names));
  const auto message = [&](const std::string& pattern) {
    return error_of<ConfigError>([&] {
      check_patterns_match("freeze", {"fc.*", pattern}, names);
    });
  };
  expect_parts(
      message("layr1.*"), {"freeze has the pattern 'layr1.*'",
                           "did you mean 'layer1.*'?", "change --freeze"});
  EXPECT_THAT(message("fc.bais"), HasSubstr("did you mean 'fc.bias'?"));
  EXPECT_THAT(message("backbone.encoder.*"), Not(HasSubstr("did you mean")));
}

}  // namespace tandem::name_patterns_test
