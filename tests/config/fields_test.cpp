#include "tandem/config/fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tests/core/expect.h"
#include "tests/places.h"
#include "tests/scratch.h"

namespace tandem::fields_test {

TEST(Fields, DefaultsAreValidAndSurviveTheirText) {
  const RunConfig defaults;
  EXPECT_NO_THROW(check(defaults));
  for (const auto& field : config_fields()) {
    SCOPED_TRACE(field.name);
    RunConfig again;
    EXPECT_TRUE(field.assign(again, field.text(defaults)));
    EXPECT_EQ(to_toml(again), to_toml(defaults));
    EXPECT_FALSE(field.what.empty());
  }
}

TEST(Fields, AcceptEachChoiceAndWordAndNoOther) {
  for (const auto& field : config_fields()) {
    SCOPED_TRACE(field.name);
    for (const auto& word : field.words) {
      RunConfig config;
      set_field(config, field, word.name, "test");
      EXPECT_EQ(field.text(config), word.name);
      EXPECT_EQ(to_toml(config, field), "\"" + word.name + "\"");
    }
    if (field.type != Field::Type::text) {
      RunConfig config;
      expect_error<ConfigError>(
          [&] { set_field(config, field, "?", "a.toml:3"); },
          {"a.toml:3: " + field.name, "'?'"});
    }
  }
}

TEST(Fields, RefuseNumbersOutOfRange) {
  for (const auto& field : config_fields()) {
    if (!field.is_number()) {
      continue;
    }
    SCOPED_TRACE(field.name);
    EXPECT_LT(field.least, field.most);
    for (const std::string beyond : {"-1e38", "1e38"}) {
      RunConfig config;
      if (field.type == Field::Type::real && field.assign(config, beyond)) {
        expect_error<ConfigError>(
            [&] { check_fields(config); }, {field.name + " is ", field.flag()});
      }
    }
  }
}

// The number that a word stands for is not accepted as a number.
TEST(Fields, RefuseTheNumbersThatWordsStandFor) {
  for (const auto& [name, number] : std::vector<std::pair<std::string, std::string>>{
           {"nproc", "0"},
           {"average_every", "0"},
           {"average_every", "-1"},
           {"loss_scale", "0"},
           {"loss_scale", "-1"}}) {
    RunConfig config;
    expect_error<ConfigError>(
        [&, &name = name, &number = number] {
          set_field(config, find_field(name, "test"), number, "test");
        },
        {name + " is '" + number + "', expected "});
  }
}

TEST(Fields, RefuseASettingThatAnotherChoiceUses) {
  RunConfig config;
  config.optimizer.kind = OptimizerKind::adam;
  config.optimizer.momentum = 0.9;
  expect_error<ConfigError>(
      [&] { check(config); },
      {"momentum is 0.9, which is for optimizer sgd, rmsprop, not adam; leave out "
       "--momentum, or change --optimizer"});
  config.optimizer.kind = OptimizerKind::sgd;
  EXPECT_NO_THROW(check(config));
}

TEST(ModelField, AcceptsPathsOfNetworkFiles) {
  const auto& field = find_field("model", "test");
  for (const std::string path : {"resnet.pt2", "../nets/my \"net\".pt", "a.b/c.pt2"}) {
    RunConfig config;
    set_field(config, field, path, "test");
    EXPECT_EQ(config.model.kind, ModelKind::file);
    EXPECT_EQ(config.model.file, path);
    EXPECT_EQ(config.model.model(), path);
    EXPECT_NO_THROW(check(config));
    RunConfig copy;
    field.copy(copy, config);
    EXPECT_EQ(to_toml(copy), to_toml(config));
    set_field(config, field, "convnet", "test");
    EXPECT_EQ(config.model.kind, ModelKind::convnet);
    EXPECT_EQ(config.model.file, "");
  }
}

TEST(ModelField, RefusesOtherEndingsWithAdvice) {
  for (const std::string path :
       {"file", ".pt2", "net.pth", "net.pt2/", "resnet.onnx"}) {
    RunConfig config;
    expect_error<ConfigError>(
        [&] { set_field(config, find_field("model", "test"), path, "--model"); },
        {"--model: model cannot be '" + path + "'", "choose one of net, ",
         "or a file of torch.export (NET.pt2) or TorchScript (NET.pt)"});
    EXPECT_EQ(config.model.kind, ModelKind::net);
  }
}

TEST(ModelField, KindAndFileBelongTogether) {
  RunConfig config;
  config.model.kind = ModelKind::file;
  expect_error<ConfigError>(
      [&] { check(config); }, {"model.file is '' and model.kind is file"});
  config.model.kind = ModelKind::net;
  config.model.file = "net.pt2";
  expect_error<ConfigError>([&] { check(config); }, {"model.kind is net"});
}

TEST(ModelField, AFileMayEndInALogSoftmax) {
  RunConfig config;
  set_field(config, find_field("model", "test"), "net.pt2", "test");
  config.model.loss = LossKind::nll;
  EXPECT_NO_THROW(check(config));
}

TEST(RecipeSchema, HasEverySettingAndEveryKeyOfTheRecipes) {
  const auto schema = nlohmann::json::parse(recipe_schema());
  const auto& properties = schema.at("properties");
  for (const auto& field : config_fields()) {
    ASSERT_TRUE(properties.contains(field.name)) << field.name;
    EXPECT_EQ(properties[field.name]["description"], field.help());
  }
  for (const char* key : {"description", "tutorial", "without_gpu"}) {
    EXPECT_TRUE(properties.contains(key)) << key;
  }
  EXPECT_EQ(properties["lr"]["anyOf"][1]["const"], -1);
  EXPECT_EQ(properties["sync"]["enum"][1], "flat");
  EXPECT_EQ(properties["model"]["anyOf"][0]["enum"][0], "net");
  EXPECT_EQ(properties["model"]["anyOf"][1]["pattern"], "\\.pt2$|\\.pt$");
  EXPECT_EQ(properties["nproc"]["anyOf"][1]["enum"][0], "auto");
}

TEST(ParseNumber, ParsesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<int64_t>("12"), 12);
  EXPECT_EQ(parse_number<int64_t>("+3"), 3);
  EXPECT_EQ(parse_number<int64_t>("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(parse_number<double>("1e-3"), 1e-3);
  for (const std::string text :
       {"", " 1", "1 ", "1x", "+", "+-1", "0x10", "9223372036854775808", "1.5"}) {
    EXPECT_EQ(parse_number<int64_t>(text), std::nullopt) << text;
  }
  for (const std::string text : {"", "nan", "inf", "-inf", "1e999", "1,5", "e1"}) {
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << text;
  }
}

}  // namespace tandem::fields_test
