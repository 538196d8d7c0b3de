// `tandem predict`, and a program that loads the network of a run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "program.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/data/idx.h"
#include "tests/parity/python.h"

namespace tandem::predict_test {

using testing::HasSubstr;
using testing::StartsWith;

class PredictProgram : public testing::Test {
 protected:
  void SetUp() override {
    run_ok(
        {"data", "make", "digits", "--out", data_, "--train", "640", "--test", "300"});
    run_ok(
        {"train", "--data", data_, "--model", "net", "--batch-size", "16", "--nproc",
         "2", "--out", run_});
  }

  // Returns the rows of the predictions, split into fields.
  std::vector<std::vector<std::string>> predict(const Arguments& more = {}) const {
    run_ok(with({"predict", "--checkpoint", run_, "--out", csv_}, more));
    std::vector<std::vector<std::string>> rows;
    for (const auto& line : split(read_file(csv_), '\n')) {
      rows.push_back(split(line, ','));
    }
    return rows;
  }

  Scratch scratch_;
  const std::string data_ = scratch_ / "digits";
  const std::string run_ = scratch_ / "run";
  const std::string csv_ = scratch_ / "predictions.csv";
};

TEST_F(PredictProgram, AccuracyOfAnyPartEqualsThatOfEval) {
  EXPECT_THAT(
      run_ok({"predict", "--checkpoint", run_, "--out", csv_}).output,
      HasSubstr("wrote 300 predictions to " + csv_ + "\n"));
  const auto rows = predict({"--batch-size", "128"});
  ASSERT_EQ(rows.size(), 301u);
  EXPECT_THAT(
      rows[0], testing::ElementsAre(
                   "index", "label", "prediction", "p_0", "p_1", "p_2", "p_3", "p_4",
                   "p_5", "p_6", "p_7", "p_8", "p_9"));
  int correct = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    correct += rows[i][1] == rows[i][2] ? 1 : 0;
  }
  EXPECT_GT(correct, 60);
  EXPECT_THAT(
      run_ok({"eval", "--checkpoint", run_}).output,
      HasSubstr("Accuracy: " + std::to_string(correct) + "/300 "));

  // Other parts of the data.
  EXPECT_EQ(predict({"--split", "train"}).size(), 641u);
  EXPECT_THAT(
      run_ok({"eval", "--checkpoint", run_, "--split", "train"}).output,
      HasSubstr("/640 "));
  const auto first = predict({"--limit", "7"});
  EXPECT_EQ(first.size(), 8u);
  const auto images =
      predict({"--limit", "7", "--data", data_ + "/t10k-images-idx3-ubyte"});
  ASSERT_EQ(images.size(), 8u);
  EXPECT_EQ(images[0][1], "prediction");
  EXPECT_EQ(images[7].back(), first[7].back());
}

TEST_F(PredictProgram, DetailsOfEvalCountThePredictionsOfEachClass) {
  const auto rows = predict();
  std::map<std::string, std::map<std::string, int>> counts;
  for (size_t i = 1; i < rows.size(); ++i) {
    ++counts[rows[i][1]][rows[i][2]];
  }
  const auto details = run_ok({"eval", "--checkpoint", run_, "--details"}).output;
  const auto lines = split(details, '\n');
  ASSERT_EQ(lines.size(), 1u + 11u + 12u) << details;
  for (size_t c = 0; c < 10; ++c) {
    const std::string name = std::to_string(c);
    std::istringstream row(lines[14 + c]);
    std::string shown;
    row >> shown;
    EXPECT_EQ(shown, name);
    int all = 0;
    for (int other = 0; other < 10; ++other) {
      int count = -1;
      row >> count;
      EXPECT_EQ(count, counts[name][std::to_string(other)]) << details;
      all += count;
    }
    std::istringstream accuracy(lines[2 + c]);
    int targets = 0;
    int correct = 0;
    accuracy >> shown >> targets >> correct;
    EXPECT_EQ(shown, name);
    EXPECT_EQ(targets, all);
    EXPECT_EQ(correct, counts[name][name]);
  }
}

TEST_F(PredictProgram, BestNeedsARunThatKeptItsBestCheckpoint) {
  run_ok({"export", "--checkpoint", run_, "--best", "--out", scratch_ / "best.pt"});
  run_ok({"predict", "--checkpoint", run_, "--best", "--out", csv_});
  const auto newest = run_ + "/checkpoints/step-00000020";
  expect_error_line(
      tandem_run({"eval", "--checkpoint", newest, "--best"}), 2,
      {newest, "expected the directory of a run for --best"});
}

// Writes a test image as PGM.
std::string write_pgm(const std::string& path, const std::string& data, size_t index) {
  const auto images = read_idx(data + "/t10k-images-idx3-ubyte", 3);
  const auto begin = images.values.begin() + static_cast<std::ptrdiff_t>(index) * 784;
  replace_file(path, "P5 28 28 255\n" + std::string(begin, begin + 784));
  return path;
}

TEST_F(PredictProgram, ProbabilitiesEqualThoseOfPython) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto weights = scratch_ / "net.pt";
  run_ok({"export", "--checkpoint", run_, "--out", weights});
  const auto theirs =
      checked(run_peer({"predict", "--data", data_, "--weights", weights}));
  const auto lines = split(theirs.output, '\n');
  const auto rows = predict();
  ASSERT_EQ(lines.size(), 300u);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::istringstream expected(lines[i]);
    for (size_t j = 3; j < 13; ++j) {
      double probability = -1;
      expected >> probability;
      EXPECT_NEAR(std::atof(rows[i + 1][j].c_str()), probability, 1e-6) << i;
    }
  }
  // A program of ten lines.
  for (const size_t i : {0, 7, 150}) {
    const auto image = write_pgm(scratch_ / "image.pgm", data_, i);
    const auto ours = checked(run_command({program("predict"), run_, image}));
    const auto& prediction = rows[i + 1][2];
    EXPECT_THAT(ours.output, StartsWith(prediction + ", probability "));
    std::istringstream expected(lines[i]);
    double probability = -1;
    for (int j = 0; j <= std::atoi(prediction.c_str()); ++j) {
      expected >> probability;
    }
    EXPECT_NEAR(
        std::atof(ours.output.substr(ours.output.rfind(' ')).c_str()), probability,
        1e-6);
  }
}

}  // namespace tandem::predict_test
