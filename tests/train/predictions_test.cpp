// CSV files of predictions.

#include "tandem/train/predictions.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/softmax.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/data/idx.h"
#include "tandem/train/trainer.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem::predictions_test {

constexpr int64_t kSamples = 23;

class Predictions : public testing::Test {
 protected:
  // Trains simplenet on images with these classes.
  void train_on(const std::vector<std::string>& class_names) {
    RunConfig config;
    config.model.kind = ModelKind::simplenet;
    config.training.batch_size = 8;
    config.training.epochs = 1;
    config.output.out = run_;
    data_ = noise_images(kSamples);
    data_.class_names = class_names;
    (void)train(config, {data_, data_}, *make_single_communicator());
  }

  // Options with batches of 10. The last bits of outputs depend on the batch size.
  static CheckpointEvaluation options_for(const Dataset& data) {
    CheckpointEvaluation options;
    options.dataset = data;
    options.batch_size = 10;
    return options;
  }

  // Returns the rows of the predictions for `data`.
  std::vector<std::string> rows_for(const Dataset& data) {
    EXPECT_EQ(write_predictions(out_, run_, options_for(data)), data.size);
    return split(read_file(out_), '\n');
  }

  // Returns the softmax of the outputs of the evaluation.
  std::vector<float> probabilities() const {
    CheckpointEvaluation options = options_for(data_);
    std::vector<float> all;
    options.after_batch = [&](const EvaluatedBatch& evaluated) {
      const auto values = evaluated.output.softmax(1).contiguous();
      const auto* first = values.data_ptr<float>();
      all.insert(all.end(), first, first + values.numel());
    };
    (void)evaluate_checkpoint(run_, options);
    return all;
  }

  const Scratch scratch_;
  const std::string run_ = scratch_ / "run";
  const std::string out_ = scratch_ / "predictions.csv";
  Dataset data_;
};

TEST_F(Predictions, HaveTheProbabilitiesOfTheEvaluationBitByBit) {
  train_on({});
  const auto rows = rows_for(data_);
  ASSERT_EQ(rows.size(), kSamples + 1);
  EXPECT_EQ(rows[0], "index,label,prediction,p_0,p_1,p_2,p_3,p_4");
  const auto expected = probabilities();
  int64_t correct = 0;
  for (size_t i = 0; i < kSamples; ++i) {
    const auto fields = split(rows[i + 1], ',');
    ASSERT_EQ(fields.size(), 8);
    EXPECT_EQ(fields[0], std::to_string(i));
    EXPECT_EQ(fields[1], std::to_string(data_.targets.bytes[i]));
    correct += fields[1] == fields[2] ? 1 : 0;
    size_t most = 0;
    for (size_t j = 0; j < 5; ++j) {
      const float found = std::strtof(fields[j + 3].c_str(), nullptr);
      EXPECT_EQ(found, expected[i * 5 + j]) << rows[i + 1];
      most = expected[i * 5 + j] > expected[i * 5 + most] ? j : most;
    }
    EXPECT_EQ(fields[2], std::to_string(most));
  }
  EXPECT_EQ(correct, evaluate_checkpoint(run_, options_for(data_)).correct);
}

TEST_F(Predictions, QuoteNamesOfClasses) {
  train_on({"cat", "a,b", "say \"hi\"", "dog", "\x1b[31mowl"});
  const auto rows = rows_for(data_);
  EXPECT_EQ(
      rows[0],
      "index,label,prediction,p_cat,\"p_a,b\",\"p_say "
      "\"\"hi\"\"\",p_dog,p_\\x1b[31mowl");
  const std::vector<std::string> fields = {
      "cat", "\"a,b\"", "\"say \"\"hi\"\"\"", "dog", "\\x1b[31mowl"};
  for (size_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(
        rows[i + 1].rfind(
            std::to_string(i) + "," + fields[data_.targets.bytes[i]] + ",", 0),
        0)
        << rows[i + 1];
  }
}

TEST_F(Predictions, OfImagesWithoutLabelsHaveNoLabels) {
  train_on({});
  const auto labelled = rows_for(data_);
  data_.targets.bytes = {};
  const auto rows = rows_for(data_);
  EXPECT_EQ(rows[0], "index,prediction,p_0,p_1,p_2,p_3,p_4");
  const std::string images = scratch_ / "images.gz";
  write_idx(
      images,
      {{kSamples, 8, 8}, {data_.inputs.bytes.begin(), data_.inputs.bytes.end()}});
  CheckpointEvaluation options;
  options.data = images;
  options.batch_size = 10;
  EXPECT_EQ(write_predictions(out_, run_, options), kSamples);
  EXPECT_EQ(split(read_file(out_), '\n'), rows);
  for (size_t i = 1; i < rows.size(); ++i) {
    auto fields = split(labelled[i], ',');
    fields.erase(fields.begin() + 1);
    EXPECT_EQ(join(fields, ","), rows[i]);
  }
}

TEST_F(Predictions, LeaveNoFileAfterAnError) {
  train_on({});
  Dataset wide = noise_images(4);
  wide.inputs.shape = {1, 16, 4};
  CheckpointEvaluation options;
  options.dataset = wide;
  expect_error<ConfigError>(
      [&] { write_predictions(out_, run_, options); }, {"1x16x4", "1x8x8"});
  replace_file(scratch_ / "images", "no images");
  options.dataset.reset();
  options.data = scratch_ / "images";
  expect_error<DataError>(
      [&] { write_predictions(out_, run_, options); }, {options.data});
  options.part = DataPart::train;
  expect_error<ConfigError>(
      [&] { write_predictions(out_, run_, options); },
      {"--split is train", "leave out --split"});
  options.data.clear();
  expect_error<DataError>(
      [&] { write_predictions(scratch_ / "no/such.csv", run_, options); },
      {scratch_ / "no/such.csv"});
  EXPECT_THAT(list_directory(scratch_.path()), testing::ElementsAre("images", "run"));
}

}  // namespace tandem::predictions_test
