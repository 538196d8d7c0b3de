#include "tandem/data/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <string>

#include "tests/data/some_samples.h"

namespace tandem::description_test {

constexpr size_t kMost = 1'000;

Dataset table() {
  auto data = dataset_of(
      5, make_samples<float>({2, 3}, 5, [](int64_t i) { return i; }),
      make_samples<int64_t>({4}, 5, [](int64_t i) { return i; }));
  data.name = "a folder/with spaces";
  data.is_loadable = true;
  data.num_classes = 300;
  data.class_names = {"a cat", "", "two\nlines", "3 4"};
  data.columns = "a,\"b\nc\"\n\"d\",x,y\n";
  data.mean = {1.0 / 3, -2e-30, 0};
  data.std = {0.1, 1e30};
  data.target_mean = {250'000.5};
  data.target_std = {1.0 / 7};
  return data;
}

std::optional<Dataset> read(const std::string& text, size_t most = kMost) {
  std::istringstream in(text);
  return read_description(in, most);
}

void expect_equal(const Dataset& a, const Dataset& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.is_loadable, b.is_loadable);
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.inputs.type, b.inputs.type);
  EXPECT_EQ(a.inputs.shape, b.inputs.shape);
  EXPECT_EQ(a.targets.type, b.targets.type);
  EXPECT_EQ(a.targets.shape, b.targets.shape);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.is_sequence, b.is_sequence);
  EXPECT_EQ(a.num_classes, b.num_classes);
  EXPECT_EQ(a.class_names, b.class_names);
  EXPECT_EQ(a.columns, b.columns);
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.std, b.std);
  EXPECT_EQ(a.target_mean, b.target_mean);
  EXPECT_EQ(a.target_std, b.target_std);
  EXPECT_EQ(a.hashes.inputs, hashes_of(b).inputs);
  EXPECT_EQ(a.hashes.targets, hashes_of(b).targets);
}

TEST(Description, HasEverythingExceptTheSamples) {
  const auto text = dataset_of(
      9, make_samples<uint8_t>({4}, 9, [](int64_t i) { return i; }),
      make_samples<float>({}, 9, [](int64_t i) { return i; }));
  auto sequence = text;
  sequence.tokens = sequence.is_sequence = true;
  for (const auto& data : {table(), text, sequence, dataset_of(0, {}, {})}) {
    const auto found = read(describe(data));
    ASSERT_TRUE(found.has_value());
    expect_equal(*found, data);
    EXPECT_TRUE(found->inputs.bytes.empty());
    EXPECT_TRUE(found->targets.bytes.empty());
  }
}

TEST(Description, SeveralFollowEachOther) {
  const Dataset none;
  std::istringstream in(
      describe(table()) + describe(none) + describe(table()) + "the rest");
  expect_equal(read_description(in, kMost).value(), table());
  expect_equal(read_description(in, kMost).value(), none);
  expect_equal(read_description(in, kMost).value(), table());
  std::string rest;
  std::getline(in, rest);
  EXPECT_EQ(rest, "the rest");
}

TEST(Description, AnIncompleteTextIsNotRead) {
  const std::string text = describe(table());
  // Without only the last line break, the text is complete.
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(read(text.substr(0, size)).has_value()) << size;
  }
}

TEST(Description, SamplesHaveAtMostTheBytesOfTheMemory) {
  // 5 samples of 24 and of 32 bytes.
  EXPECT_TRUE(read(describe(table()), 160).has_value());
  EXPECT_FALSE(read(describe(table()), 159).has_value());
  auto data = table();
  data.hashes = hashes_of(data);
  data.size = -1;
  EXPECT_FALSE(read(describe(data)).has_value());
  data.size = 1;
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {-1},
           {-1, -1},
           {int64_t{1} << 62, 8},
           {int64_t{1} << 32, int64_t{1} << 32},
           std::vector<int64_t>(17, 1)}) {
    for (const auto part : {&Dataset::inputs, &Dataset::targets}) {
      auto other = data;
      (other.*part).shape = shape;
      EXPECT_FALSE(read(describe(other)).has_value()) << shape_text(shape);
    }
  }
  data.inputs.type = static_cast<ElementType>(3);
  EXPECT_FALSE(read(describe(data)).has_value());
}

TEST(Description, TextsHaveAtMostTheBytesOfTheMemory) {
  auto data = table();
  data.columns = std::string(201, 'c');
  EXPECT_FALSE(read(describe(data), 200).has_value());
  EXPECT_TRUE(read(describe(data), 201).has_value());
  data.columns = "";
  data.class_names.assign(201, "c");
  EXPECT_FALSE(read(describe(data), 200).has_value());
  EXPECT_TRUE(read(describe(data), 201).has_value());
}

}  // namespace tandem::description_test
