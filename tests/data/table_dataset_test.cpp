#include "tandem/data/table_dataset.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"
#include "tests/scratch.h"

namespace tandem::table_dataset_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTrain =
    "color,size,label\n"
    "red,1,cat\n"
    "blue,2.5,dog\n"
    "green,-3,cat\n"
    "red,4,ape\n";

class Table : public testing::Test {
 protected:
  Table() {
    make_directories(folder_);
  }

  DatasetSplits load_parts(
      const std::string& train, const std::string& test, const std::string& target,
      WholeTargets whole = WholeTargets::automatic) const {
    replace_file(folder_ + "/train.csv", train);
    replace_file(folder_ + "/test.csv", test);
    DataRequest request(folder_);
    request.options.target = target;
    request.whole_targets = whole;
    return load_dataset(request);
  }

  // Loads a table as both parts.
  Dataset load(
      const std::string& text, const std::string& target,
      WholeTargets whole = WholeTargets::automatic) const {
    return load_parts(text, text, target, whole).train;
  }

  template <typename Error>
  std::string refusal(
      const std::string& text, const std::string& target,
      WholeTargets whole = WholeTargets::automatic) const {
    return error_of<Error>([&] { load(text, target, whole); });
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_ / "data";
};

std::vector<float> floats(const Samples& samples) {
  const auto* first = reinterpret_cast<const float*>(samples.bytes.data());
  return {first, first + samples.bytes.size() / sizeof(float)};
}

TEST_F(Table, ACategoryIsANumberForEachText) {
  const auto train = load(kTrain, "label");
  EXPECT_EQ(train.size, 4);
  EXPECT_THAT(train.inputs.shape, ElementsAre(4));
  // blue, green, red, size
  EXPECT_THAT(
      floats(train.inputs),
      ElementsAre(0, 0, 1, 1, 1, 0, 0, 2.5, 0, 1, 0, -3, 0, 0, 1, 4));
  EXPECT_THAT(train.class_names, ElementsAre("ape", "cat", "dog"));
  EXPECT_EQ(train.num_classes, 3);
  EXPECT_THAT(labels_of(train), ElementsAre(1, 2, 1, 0));
}

TEST_F(Table, TheTestPartHasTheColumnsOfTheTrainingPart) {
  const auto splits =
      load_parts(kTrain, "label,size,color\ndog,7,blue\nape,8,red\n", "label");
  EXPECT_THAT(floats(splits.test.inputs), ElementsAre(1, 0, 0, 7, 0, 0, 1, 8));
  EXPECT_THAT(labels_of(splits.test), ElementsAre(2, 0));
  EXPECT_THAT(splits.test.class_names, ElementsAre("ape", "cat", "dog"));
  EXPECT_EQ(splits.test.num_classes, 3);
  EXPECT_EQ(splits.test.columns, splits.train.columns);
  for (const auto& [test, problem] : std::vector<std::pair<std::string, std::string>>{
           {"color,size,label\npink,1,cat\n", "pink"},
           {"color,size,label\nred,1,bear\n", "bear"},
           {"color,size,label\nred,big,cat\n", "big"},
           {"color,label\nred,cat\n", "size"},
           {"color,size,label,more\nred,1,cat,2\n", "more"}}) {
    expect_error<DataError>(
        [&, &text = test] { return load_parts(kTrain, text, "label"); },
        {"test.csv", problem});
  }
}

TEST_F(Table, ATableWithoutATestPartIsDivided) {
  std::string text = "x,y\n";
  for (int i = 0; i < 20; ++i) {
    text += std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  }
  replace_file(scratch_ / "one.csv", text);
  DataRequest request(scratch_ / "one.csv");
  request.options.target = "y";
  const auto splits = load_dataset(request);
  EXPECT_EQ(splits.train.size, 18);
  EXPECT_EQ(splits.test.size, 2);
  for (const float x : floats(splits.test.inputs)) {
    EXPECT_THAT(floats(splits.train.inputs), testing::Not(testing::Contains(x)));
  }
}

TEST_F(Table, WholeNumbersAreClassesUnlessTheLossHasValues) {
  const std::string text = "x,y\n1,0\n2,5\n3,2\n";
  const auto classes = load(text, "y");
  EXPECT_THAT(labels_of(classes), ElementsAre(0, 5, 2));
  EXPECT_EQ(classes.num_classes, 6);
  EXPECT_THAT(classes.class_names, IsEmpty());
  const auto values = load(text, "y", WholeTargets::values);
  EXPECT_THAT(values.targets.shape, ElementsAre(1));
  EXPECT_THAT(floats(values.targets), ElementsAre(0, 5, 2));
  EXPECT_EQ(values.num_classes, 1);
  // A fraction or a negative number is no class.
  for (const char* number : {"0.5", "-1", "16777216"}) {
    const auto others = load(text + "4," + number + "\n", "y");
    EXPECT_FALSE(others.has_classes()) << number;
  }
}

// Returns a table with the targets 0, `step`, 2 * `step` and so on.
std::string table_with_steps(int count, int step) {
  std::string text = "x,y\n";
  for (int i = 0; i < count; ++i) {
    text += std::to_string(i) + "," + std::to_string(i * step) + "\n";
  }
  return text;
}

TEST_F(Table, ManyWholeNumbersWithGapsAreValuesUnlessTheLossHasClasses) {
  const auto log_of = [&](const std::string& text, WholeTargets whole,
                          bool has_classes) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(load(text, "y", whole).has_classes(), has_classes) << text;
    return testing::internal::GetCapturedStderr();
  };
  const auto automatic = WholeTargets::automatic;
  expect_parts(
      log_of(table_with_steps(21, 3), automatic, false),
      {"target column 'y' of '" + folder_ + "' has 21 different whole numbers up to 60",
       "are values of a regression; for classes, set --loss cross_entropy"});
  EXPECT_THAT(
      log_of(table_with_steps(21, 1), automatic, true),
      HasSubstr("up to 20, which are classes; for a regression, set --loss mse"));
  // Few numbers are classes.
  EXPECT_THAT(
      log_of(table_with_steps(20, 3), automatic, true),
      testing::Not(HasSubstr("different whole numbers")));
  for (const auto& [whole, has_classes] :
       {std::pair(WholeTargets::classes, true), {WholeTargets::values, false}}) {
    EXPECT_THAT(
        log_of(table_with_steps(21, 3), whole, has_classes),
        testing::Not(HasSubstr("different whole numbers")));
  }
}

TEST_F(Table, TestTargetsMustBeClassesAsInTheTrainingPart) {
  for (const char* number : {"0.5", "-1"}) {
    expect_error<DataError>(
        [&] {
          return load_parts(
              "x,y\n1,0\n2,1\n", "x,y\n1,0\n2," + std::string(number) + "\n", "y");
        },
        {"target column 'y' of '" + folder_ + "' has other numbers"});
  }
  // Values of the training part make values of whole numbers.
  const auto splits = load_parts("x,y\n1,0.5\n2,1\n", "x,y\n1,0\n2,1\n", "y");
  EXPECT_THAT(floats(splits.test.targets), ElementsAre(0, 1));
}

TEST_F(Table, SeveralTargetColumnsAreValues) {
  const auto data = load("a,b,c\n1,2,3\n4,5,6\n", "c,a");
  EXPECT_THAT(data.targets.shape, ElementsAre(2));
  EXPECT_THAT(floats(data.targets), ElementsAre(3, 1, 6, 4));
  EXPECT_THAT(floats(data.inputs), ElementsAre(2, 5));
  EXPECT_THAT(data.class_names, ElementsAre("c", "a"));
  EXPECT_EQ(data.num_classes, 2);
  expect_parts(
      refusal<ConfigError>(kTrain, "size,label"),
      {"'label'", "numbers for several target columns"});
  expect_parts(
      refusal<ConfigError>(kTrain, "label", WholeTargets::values),
      {"texts such as 'ape'", "numbers for this loss"});
}

TEST_F(Table, TheTargetMustBeAColumn) {
  expect_parts(
      refusal<ConfigError>(kTrain, ""), {"target is not set, expected a column",
                                         "color, size, label; add --target COLUMN"});
  expect_parts(
      refusal<ConfigError>(kTrain, "lable"),
      {"target is 'lable', expected a column", "did you mean 'label'"});
  EXPECT_THAT(
      refusal<ConfigError>(kTrain, "label,color,size"),
      HasSubstr("all columns of '" + folder_ + "' are targets"));
  EXPECT_THAT(
      refusal<ConfigError>("a,b,c,d,e,f,g,h,i\n1,2,3,4,5,6,7,8,9\n", "other"),
      HasSubstr("a, b, c, d, e, f, g, h, ...; change"));
}

// The other part may have columns that the choice leaves out.
TEST_F(Table, ColumnsAndCategoriesCanBeChosen) {
  replace_file(folder_ + "/train.csv", std::string("id,zip,x,y\n1,20,3,0\n2,30,4,1\n"));
  replace_file(folder_ + "/test.csv", std::string("y,x,zip,extra\n1,5,30,a\n"));
  DataRequest request(folder_);
  request.options.target = "y";
  request.options.columns = "all,-id";
  request.options.categories = "zip";
  const auto splits = load_dataset(request);
  EXPECT_TRUE(tensor_of(splits.train.inputs, 2)
                  .equal(at::tensor({1.F, 0.F, 3.F, 0.F, 1.F, 4.F}).view({2, 3})));
  EXPECT_TRUE(
      tensor_of(splits.test.inputs, 1).equal(at::tensor({0.F, 1.F, 5.F}).view({1, 3})));
  request.columns = splits.train.columns;
  request.options.source = folder_ + "/test.csv";
  EXPECT_EQ(load_inputs(request).size, 1);
}

TEST_F(Table, TheShapeMustFitTheInputs) {
  replace_file(folder_ + "/train.csv", std::string(kTrain));
  replace_file(folder_ + "/test.csv", std::string(kTrain));
  DataRequest request(folder_);
  request.options.target = "label";
  request.options.shape = "2,2";
  EXPECT_THAT(load_dataset(request).train.inputs.shape, ElementsAre(2, 2));
  request.options.shape = "1,28,28";
  expect_error<ConfigError>(
      [&] { return load_dataset(request); },
      {"shape is '1,28,28', expected sizes of 4 numbers"});
}

TEST_F(Table, TooManyCategoriesForTheMemoryAreAnError) {
  std::string text = "key,label\n";
  for (int i = 0; i < 400'000; ++i) {
    text += "k" + std::to_string(i) + ",1\n";
  }
  expect_error<ConfigError>(
      [&] { return load(text, "label"); },
      {"with 400000 inputs per sample, one for each category, has ",
       "more than half of the free memory", "--columns"});
}

TEST_F(Table, InputsForPredictionsMayLackTheTarget) {
  DataRequest request;
  request.columns = load(kTrain, "label").columns;
  request.options.target = "label";
  const std::string path = request.options.source = scratch_ / "new.csv";
  replace_file(path, std::string("size,color\n5,green\n"));
  const auto unlabelled = load_inputs(request);
  EXPECT_EQ(unlabelled.size, 1);
  EXPECT_THAT(floats(unlabelled.inputs), ElementsAre(0, 1, 0, 5));
  EXPECT_TRUE(unlabelled.targets.bytes.empty());
  replace_file(path, std::string("size,color,label\n5,green,dog\n"));
  EXPECT_THAT(labels_of(load_inputs(request)), ElementsAre(2));
  replace_file(path, std::string("size,label\n5,dog\n"));
  expect_error<DataError>([&] { return load_inputs(request); }, {"color"});
}

}  // namespace tandem::table_dataset_test
