// Evaluations and predictions for other images than those of the training.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/data/load_dataset.h"
#include "tandem/data/write_digits.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/predictions.h"
#include "tandem/train/trainer.h"
#include "tests/core/expect.h"
#include "tests/data/image_files.h"
#include "tests/scratch.h"

namespace tandem::image_predictions_test {

using testing::StartsWith;

// Trains on folders of the classes 0 to 9, with 8 test images each.
class ImagePredictions : public testing::Test {
 protected:
  ImagePredictions() {
    setenv("XDG_CACHE_HOME", (scratch_ / "cache").c_str(), 1);
    write_digits(digits_, 400, 80, DigitsFormat::png);
    RunConfig config;
    config.model.kind = ModelKind::simplenet;
    config.training.epochs = 1;
    config.data.source = digits_;
    config.output.out = run_;
    (void)train(config, load_dataset(digits_), *make_single_communicator());
  }
  ~ImagePredictions() override {
    unsetenv("XDG_CACHE_HOME");
  }

  // Returns the lines of the predictions, and the header as first line.
  std::vector<std::string> predict(const std::string& data) const {
    CheckpointEvaluation options;
    options.data = data;
    (void)write_predictions(out_, run_, options);
    return split(read_file(out_), '\n');
  }

  TestReport evaluate(const std::string& data) const {
    CheckpointEvaluation options;
    options.data = data;
    return evaluate_checkpoint(run_, options);
  }

  std::string copy_class(const std::string& from, const std::string& to) const {
    const std::string folder = scratch_ / "other";
    make_directories(folder);
    std::filesystem::copy(digits_ + "/test/" + from, folder + "/" + to);
    return folder;
  }

  const Scratch scratch_;
  const std::string digits_ = scratch_ / "digits";
  const std::string run_ = scratch_ / "run";
  const std::string out_ = scratch_ / "predictions.csv";
};

// Returns the fields of a line from number `first` on.
std::vector<std::string> fields_of(const std::string& line, int64_t first) {
  auto fields = split(line, ',');
  fields.erase(fields.begin(), fields.begin() + first);
  return fields;
}

TEST_F(ImagePredictions, NameTheFilesOfClassFolders) {
  const auto lines = predict(digits_);
  ASSERT_EQ(lines.size(), 81u);
  EXPECT_THAT(lines[0], StartsWith("index,file,label,prediction,p_0,p_1,"));
  EXPECT_THAT(lines[1], StartsWith("0,0/0"));
  EXPECT_THAT(lines[80], StartsWith("79,9/0"));
}

TEST_F(ImagePredictions, OfLooseImagesEqualThoseOfTheSameImagesInClassFolders) {
  const auto all = predict(digits_);
  const auto loose = predict(digits_ + "/test/7");
  ASSERT_EQ(loose.size(), 9u);
  EXPECT_THAT(loose[0], StartsWith("index,file,prediction,p_0,p_1,"));
  for (size_t i = 1; i <= 8; ++i) {
    const auto& labelled = all[7 * 8 + i];
    EXPECT_EQ("7/" + fields_of(loose[i], 1)[0], fields_of(labelled, 1)[0]);
    EXPECT_EQ(fields_of(loose[i], 2)[0], fields_of(labelled, 3)[0]);
  }
}

TEST_F(ImagePredictions, OfOneImage) {
  const auto folder = predict(digits_ + "/test/7");
  const std::string file = fields_of(folder[1], 1)[0];
  const auto lines = predict(digits_ + "/test/7/" + file);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], StartsWith("0," + file + ","));
}

TEST_F(ImagePredictions, ConvertColorsToTheChannelsOfTheTraining) {
  const std::string file = scratch_ / "a, \"b\".png";
  write_png(file, draw_picture(28, 28, 3));
  EXPECT_THAT(predict(file)[1], StartsWith("0,\"a, \"\"b\"\".png\","));
}

TEST_F(ImagePredictions, OfOtherFilesAreErrors) {
  const std::string file = scratch_ / "text.png";
  replace_file(file, "text");
  expect_error<DataError>([&] { return predict(file); }, {"text.png", "expected"});
  EXPECT_FALSE(file_exists(out_));
}

TEST_F(ImagePredictions, ClassFoldersOfOtherDataHaveTheClassesOfTheirNames) {
  const auto all = predict(digits_);
  const auto correct = std::count_if(
      all.begin() + 7 * 8 + 1, all.begin() + 8 * 8 + 1,
      [](const std::string& line) { return fields_of(line, 3)[0] == "7"; });
  ASSERT_GT(correct, 0);
  const auto report = evaluate(copy_class("7", "7"));
  EXPECT_EQ(report.count, 8);
  EXPECT_EQ(report.correct, correct);
}

TEST_F(ImagePredictions, ClassFoldersOfOtherNamesAreErrors) {
  expect_error<DataError>(
      [&] { return evaluate(copy_class("7", "seven")); },
      {"has the class 'seven', expected a class of the checkpoint"});
}

}  // namespace tandem::image_predictions_test
