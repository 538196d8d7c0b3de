#include "tandem/config/options/channel_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/config/fields.h"
#include "tandem/config/run_config.h"
#include "tests/core/expect.h"

namespace tandem::channel_values_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Kind = ChannelValues::Kind;

TEST(ChannelValues, TextsComeBack) {
  for (const std::string text :
       {"default", "auto", "0.1307", "0.1,0.2,0.3", "-1,0,1e-30", "3"}) {
    const auto values = ChannelValues::parse(text);
    ASSERT_TRUE(values.has_value()) << text;
    EXPECT_EQ(ChannelValues::parse(values->text())->values(), values->values());
    EXPECT_EQ(ChannelValues::parse(values->text())->kind(), values->kind());
  }
  EXPECT_EQ(ChannelValues().text(), "default");
  EXPECT_EQ(ChannelValues::parse("auto")->kind(), Kind::measured);
  EXPECT_EQ(ChannelValues(0.25).kind(), Kind::given);
  EXPECT_THAT(ChannelValues::parse("0.1,-2")->values(), ElementsAre(0.1, -2));
  EXPECT_EQ(ChannelValues(std::vector<double>{0.1, -2}).text(), "0.1,-2.0");
}

TEST(ChannelValues, MeasuredNumbersComeBackWithAllBits) {
  const std::vector<double> values = {1.0 / 3, 2e-7 / 3, 1e9 / 7};
  EXPECT_EQ(ChannelValues::parse(ChannelValues(values).text())->values(), values);
}

TEST(ChannelValues, OtherTextsAreNotParsed) {
  for (const std::string text :
       {"", "given", "Auto", "auto,auto", "0.1,auto", "0.1,,0.2", "0.1 0.2", "x", "nan",
        "1e999", ","}) {
    EXPECT_FALSE(ChannelValues::parse(text).has_value()) << text;
  }
}

RunConfig read(const std::string& recipe) {
  RunConfig config;
  read_recipe_text(config, recipe, "a.toml");
  return config;
}

TEST(ChannelValues, RecipesHaveNumbersArraysOrWords) {
  const auto config = read("mean = [0.1, 2]\nstd = 0.5\n");
  EXPECT_THAT(config.data.mean.values(), ElementsAre(0.1, 2));
  EXPECT_THAT(config.data.std.values(), ElementsAre(0.5));
  EXPECT_EQ(read("mean = \"auto\"\n").data.mean.kind(), Kind::measured);
  EXPECT_EQ(read("std = \"default\"\n").data.std.kind(), Kind::standard);
  for (const char* recipe :
       {"mean = []\n", "mean = [\"auto\"]\n", "mean = [[0.1]]\n", "mean = true\n",
        "mean = \"automatic\"\n"}) {
    EXPECT_THAT(
        error_of<ConfigError>([&] { read(recipe); }),
        AllOf(HasSubstr("a.toml:1"), HasSubstr(std::string(recipe).substr(0, 4))))
        << recipe;
  }
  for (const char* recipe : {"std = [0.5, 0]\n", "std = -1\n"}) {
    expect_error<ConfigError>([&] { check(read(recipe)); }, {"std"});
  }
  // Other settings have one number.
  expect_error<ConfigError>([] { read("lr = [0.1]\n"); }, {"an array"});
}

TEST(ChannelValues, WrittenRecipesComeBack) {
  RunConfig config;
  config.data.mean = std::vector<double>{0.1, 1.0 / 3};
  config.data.std = ChannelValues::parse("auto").value();
  const auto again = read(to_toml(config));
  EXPECT_EQ(again.data.mean.values(), config.data.mean.values());
  EXPECT_EQ(again.data.std.kind(), Kind::measured);
}

TEST(ChannelValues, TheSchemaHasNumbersArraysAndWords) {
  const auto schema = nlohmann::json::parse(recipe_schema());
  const std::string mean = schema.at("properties").at("mean").dump();
  expect_parts(mean, {"\"number\"", "\"array\"", "\"auto\"", "\"default\""});
}

}  // namespace tandem::channel_values_test
