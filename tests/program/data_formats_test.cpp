// Training on files of each format, and evaluation of the checkpoints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <filesystem>

#include "program.h"
#include "tandem/base/text.h"
#include "tandem/data/digits/digits.h"
#include "tandem/data/npy.h"
#include "tandem/data/write_digits.h"
#include "tests/parity/python.h"
#include "tests/program/ranks/hosts.h"

namespace tandem::data_formats_test {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kTrain = 240;
constexpr int64_t kTest = 60;
constexpr size_t kPixels = 784;

const Arguments kMnist = {"--mean", "0.1307", "--std", "0.3081"};
const Arguments kTable = {"--target", "label", "--shape", "1,28,28"};

// Digits of write_digits() as arrays in the order of a folder of PNG files: class by
// class.
void write_in_folder_order(const std::string& folder) {
  make_directories(folder);
  for (const auto& [part, count, seed] :
       {std::tuple("train", kTrain, 2), std::tuple("test", kTest, 3)}) {
    const auto digits = draw_digits(count, static_cast<uint64_t>(seed));
    std::vector<uint8_t> pixels;
    std::vector<uint8_t> labels;
    for (uint8_t label = 0; label < 10; ++label) {
      for (size_t i = 0; i < digits.labels.size(); ++i) {
        if (digits.labels[i] == label) {
          const auto* first = digits.pixels.data() + i * kPixels;
          pixels.insert(pixels.end(), first, first + kPixels);
          labels.push_back(label);
        }
      }
    }
    const std::string path = folder + "/" + part;
    write_npy(path + "_x.npy", ElementType::uint8, {count, 28, 28}, pixels.data());
    write_npy(path + "_y.npy", ElementType::uint8, {count}, labels.data());
  }
}

// The numbers of the CSV files of write_digits() as arrays of float32 and int64.
void write_as_numbers(const std::string& folder) {
  make_directories(folder);
  for (const auto& [part, count, seed] :
       {std::tuple("train", kTrain, 2), std::tuple("test", kTest, 3)}) {
    const auto digits = draw_digits(count, static_cast<uint64_t>(seed));
    const std::vector<float> numbers(digits.pixels.begin(), digits.pixels.end());
    const std::vector<int64_t> labels(digits.labels.begin(), digits.labels.end());
    const std::string path = folder + "/" + part;
    write_npy(
        path + "_x.npy", ElementType::float32, {count, kPixels},
        reinterpret_cast<const uint8_t*>(numbers.data()));
    write_npy(
        path + "_y.npy", ElementType::int64, {count},
        reinterpret_cast<const uint8_t*>(labels.data()));
  }
}

// Digits in several formats, and a cache of their own.
class DataFormats : public testing::Test {
 protected:
  std::string digits(DigitsFormat format) {
    const std::string folder = scratch_ / name_of(format);
    if (!file_exists(folder)) {
      write_digits(folder, kTrain, kTest, format);
    }
    return folder;
  }

  CommandResult run(const Arguments& arguments) const {
    return tandem_run(arguments, {{"XDG_CACHE_HOME", scratch_ / "cache"}});
  }

  std::string expect_ok(const Arguments& arguments) const {
    return checked(run(arguments)).output;
  }

  // Trains and returns the hash of the parameters. `start`: arguments before "train".
  std::string trained(
      const std::string& data, const Arguments& more, const Arguments& start = {}) {
    last_ = scratch_ / ("run" + std::to_string(num_runs_++));
    auto arguments = with(start, {"train", "--data", data, "--out", last_}, more);
    for (const auto& [flag, value] :
         {std::pair("--model", "convnet"), std::pair("--batch-size", "16")}) {
      if (std::find(more.begin(), more.end(), flag) == more.end()) {
        arguments = with(arguments, {flag, value});
      }
    }
    expect_ok(arguments);
    return hash_of(last_);
  }

  // Runs `tandem predict` for the last run and returns the lines of its file.
  std::vector<std::string> predicted(const Arguments& more = {}) const {
    const std::string file = scratch_ / "predictions.csv";
    expect_ok(with({"predict", "--checkpoint", last_, "--out", file}, more));
    return split(read_file(file), '\n');
  }

  std::string evaluated(const Arguments& more = {}) const {
    return expect_ok(with({"eval", "--checkpoint", last_}, more));
  }

  const Scratch scratch_;
  int num_runs_ = 0;
  // Directory of the last run.
  std::string last_;
};

// --- equal samples in several formats ---

struct Ranks {
  const char* name;
  Arguments settings;
  // Arguments before "train".
  Arguments start = {};
};

using tandem::operator<<;

class EqualFormats : public DataFormats, public testing::WithParamInterface<Ranks> {
 protected:
  void expect_equal(
      const std::string& one, const Arguments& of_one, const std::string& other,
      const Arguments& of_other) {
    const auto& [name, settings, start] = GetParam();
    const auto hash = trained(one, with(of_one, settings), start);
    EXPECT_EQ(hash.size(), 64u);
    EXPECT_EQ(trained(other, with(of_other, settings), start), hash) << name;
  }
};

TEST_P(EqualFormats, IdxAndArrays) {
  expect_equal(digits(DigitsFormat::idx), kMnist, digits(DigitsFormat::npy), kMnist);
}

TEST_P(EqualFormats, ImageFoldersAndArraysInTheirOrder) {
  write_in_folder_order(scratch_ / "ordered");
  expect_equal(digits(DigitsFormat::png), kMnist, scratch_ / "ordered", kMnist);
}

// Measures the normalization.
TEST_P(EqualFormats, TablesAndArraysOfNumbers) {
  write_as_numbers(scratch_ / "numbers");
  expect_equal(
      digits(DigitsFormat::csv), kTable, scratch_ / "numbers", {"--shape", "1,28,28"});
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, EqualFormats,
    testing::Values(
        Ranks{"One", {}}, Ranks{"Three", {"--nproc", "3"}},
        Ranks{"ThreeThreads", {"--nproc", "3", "--rank-type", "thread"}},
        Ranks{"ThreeShares", {"--nproc", "3", "--share", "scatter"}},
        // Each rank reads the files, because no launcher of tandem prepares them.
        Ranks{"ThreeWithoutPreparedData", {}, {"launch", "--nproc", "3", program()}}),
    testing::PrintToStringParamName());

// --- augmentation ---

TEST_F(DataFormats, AnAugmentedRunResumesWithEqualBits) {
  const Arguments settings = {
      "--nproc", "3", "--epochs", "2", "--checkpoint-every", "3", "--keep-checkpoints",
      "0"};
  const auto augmented = with(settings, {"--augment", "flip,crop:4"});
  const auto data = digits(DigitsFormat::png);
  const auto whole = trained(data, augmented);
  // Each epoch has 5 steps.
  const auto middle = last_ + "/checkpoints/step-00000003";
  EXPECT_EQ(trained(data, with(augmented, {"--resume", middle})), whole);
  EXPECT_NE(trained(data, settings), whole);
}

TEST_F(DataFormats, AugmentedSamplesDoNotDependOnTheNumberOfRanks) {
  const auto data = digits(DigitsFormat::png);
  const Arguments settings = {"--model",     "simplenet", "--augment",
                              "flip,crop:4", "--epochs",  "2",
                              "--log-every", "1",         "--divide-batch"};
  const auto losses_on = [&](const std::string& ranks) {
    trained(data, with(settings, {"--nproc", ranks}));
    return numbers_of(last_, "train", "loss");
  };
  const auto alone = losses_on("1");
  ASSERT_EQ(alone.size(), 30u);
  for (const char* ranks : {"2", "3"}) {
    const auto losses = losses_on(ranks);
    ASSERT_EQ(losses.size(), alone.size());
    for (size_t step = 0; step < alone.size(); ++step) {
      EXPECT_NEAR(losses[step], alone[step], 1e-4) << ranks << " ranks, step " << step;
    }
  }
}

// --- validation ---

std::vector<std::string> kinds_in(const std::string& out) {
  std::vector<std::string> kinds;
  for (const auto& line : metrics_of(out)) {
    kinds.push_back(line["kind"]);
  }
  return kinds;
}

std::vector<double> validation_losses(const std::string& out) {
  return numbers_of(out, "validation", "validation_loss");
}

std::string loss_text(double loss) {
  return fmt::format("Average loss: {:.4f}", loss);
}

TEST_F(DataFormats, PatienceAndTheBestCheckpointWatchTheValidationLoss) {
  trained(
      digits(DigitsFormat::npy),
      {"--model", "simplenet", "--nproc", "3", "--limit", "100", "--validation", "0.2",
       "--epochs", "100", "--patience", "2", "--keep-best", "--optimizer", "sgd",
       "--lr", "3", "--batch-size", "8"});
  const std::string summary = last_ + "/summary.json";
  ASSERT_EQ(json_value(summary, "ended_by"), "patience");
  const auto kinds = kinds_in(last_);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "test"), 1);
  EXPECT_EQ(kinds.back(), "test");
  const auto losses = validation_losses(last_);
  const auto best = std::min_element(losses.begin(), losses.end());
  EXPECT_EQ(losses.end() - best, 3) << "the best one and two later ones";
  EXPECT_NEAR(json_number(summary, "best_validation_loss"), *best, 1e-9);
  EXPECT_NEAR(
      json_number(summary, "test_loss"), numbers_of(last_, "test", "test_loss").at(0),
      1e-9);
  const auto run = last_;
  expect_parts(
      evaluated({"--split", "validation"}),
      {"Validation set: " + loss_text(losses.back()), "/20 "});
  expect_parts(evaluated({"--split", "train"}), {"Train set: ", "/80 "});
  EXPECT_THAT(
      evaluated(),
      HasSubstr("Test set: " + loss_text(json_number(summary, "test_loss"))));
  EXPECT_EQ(predicted({"--split", "validation"}).size(), 21u);
  EXPECT_THAT(
      evaluated({"--best", "--split", "validation"}), HasSubstr(loss_text(*best)));
  last_ = run + "/checkpoints/best";
  EXPECT_THAT(evaluated({"--split", "validation"}), HasSubstr(loss_text(*best)));
}

TEST_F(DataFormats, AResumedRunHasTheSameValidationPart) {
  const auto settings = with(
      kTable, {"--nproc", "3", "--validation", "0.25", "--epochs", "3",
               "--checkpoint-every", "5", "--keep-checkpoints", "0"});
  const auto data = digits(DigitsFormat::csv);
  const auto whole = trained(data, settings);
  const auto losses = validation_losses(last_);
  ASSERT_EQ(losses.size(), 3u);
  // Each epoch has 4 steps.
  const auto middle = last_ + "/checkpoints/step-00000005";
  EXPECT_EQ(trained(data, with(settings, {"--resume", middle})), whole);
  EXPECT_EQ(
      validation_losses(last_), std::vector<double>(losses.begin() + 1, losses.end()));
  EXPECT_THAT(
      kinds_in(last_),
      ElementsAre("resume", "train", "validation", "train", "validation", "test"));
}

// --- evaluation of checkpoints ---

// Returns the number of rows whose label is the prediction.
int64_t count_correct(const std::vector<std::string>& lines) {
  const size_t label = lines[0].rfind("index,file,", 0) == 0 ? 2 : 1;
  return std::count_if(lines.begin() + 1, lines.end(), [&](const std::string& line) {
    const auto cells = split(line, ',');
    return cells[label] == cells[label + 1];
  });
}

class EvaluatedFormats : public DataFormats,
                         public testing::WithParamInterface<DigitsFormat> {};

TEST_P(EvaluatedFormats, EvalAndPredictAgreeWithTheRun) {
  const auto data = digits(GetParam());
  const Arguments more = GetParam() == DigitsFormat::csv ? kTable : Arguments();
  const auto info = expect_ok(with({"data", "info", data}, more));
  expect_parts(
      info, {"train: 240 samples of 1x28x28, ", "test: 60 samples of 1x28x28, ",
             "class 9: 24\n"});
  trained(data, with({"--nproc", "3", "--epochs", "2"}, more));
  const double accuracy = json_number(last_ + "/summary.json", "test_accuracy");
  EXPECT_GT(accuracy, 15);
  const auto correct = std::lround(accuracy * kTest / 100);
  EXPECT_THAT(evaluated(), HasSubstr(fmt::format("Accuracy: {}/60 ", correct)));
  const auto lines = predicted();
  ASSERT_EQ(lines.size(), 61u);
  const std::string file = GetParam() == DigitsFormat::png ? "file," : "";
  EXPECT_THAT(lines[0], HasSubstr("index," + file + "label,prediction,p_0,p_1,"));
  EXPECT_EQ(count_correct(lines), correct);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, EvaluatedFormats,
    testing::Values(DigitsFormat::png, DigitsFormat::npy, DigitsFormat::csv),
    [](const auto& row) { return std::string(name_of(row.param)); });

TEST_F(DataFormats, PredictReadsAnArrayWithoutTargets) {
  const auto data = digits(DigitsFormat::npy);
  trained(data, {});
  const auto labelled = predicted();
  const auto lines = predicted({"--data", data + "/test_x.npy"});
  ASSERT_EQ(lines.size(), labelled.size());
  EXPECT_THAT(lines[0], HasSubstr("index,prediction,p_0,"));
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto cells = split(labelled[i], ',');
    EXPECT_THAT(lines[i], StartsWith(cells[0] + "," + cells[2] + "," + cells[3]));
  }
}

// Each folder numbers its own classes.
TEST_F(DataFormats, ClassesOfAnotherFolderHaveTheNumbersOfTheRun) {
  const auto data = digits(DigitsFormat::png);
  trained(data, {"--epochs", "3"});
  const std::string other = scratch_ / "other";
  for (const char* digit : {"3", "7"}) {
    make_directories(other);
    fs::copy(data + "/test/" + digit, other + "/" + digit);
  }
  const auto lines = predicted({"--data", other});
  ASSERT_EQ(lines.size(), 13u);
  EXPECT_THAT(lines[1], StartsWith("0,3/00008.png,3,"));
  EXPECT_THAT(lines[12], StartsWith("11,7/00058.png,7,"));
  EXPECT_THAT(
      evaluated({"--data", other}),
      HasSubstr(fmt::format("Accuracy: {}/12 ", count_correct(lines))));
  fs::copy(data + "/test/0", other + "/new");
  const auto eval = run({"eval", "--checkpoint", last_, "--data", other});
  expect_exit(eval, 1, {"'" + other + "' has the class 'new'"});
  const auto unlabelled = predicted({"--data", other});
  ASSERT_EQ(unlabelled.size(), 19u);
  EXPECT_THAT(unlabelled[0], StartsWith("index,file,prediction,"));
}

// Rows of two input columns, of which one has texts, and a target.
std::string table(int first, int count, const char* target) {
  const bool is_regression = std::string(target) == "price";
  std::string text = fmt::format("color,size{}{}\n", *target ? "," : "", target);
  const char* colors[] = {"red", "\"green, dark\"", "blue"};
  const char* kinds[] = {"round", "flat", "long"};
  for (int i = first; i < first + count; ++i) {
    const double size = (i * 37 % 100) / 50.0 - 1;
    text += fmt::format("{},{}", colors[i % 3], size);
    if (is_regression) {
      text += fmt::format(",{:.3f}", 2 * size + i % 3);
    } else if (*target) {
      text += fmt::format(",{}", kinds[i % 3]);
    }
    text += "\n";
  }
  return text;
}

TEST_F(DataFormats, CategoriesOfATableAreStoredWithTheRun) {
  replace_file(scratch_ / "kinds.csv", table(0, 200, "kind"));
  const std::string data = scratch_ / "kinds.csv";
  expect_parts(
      expect_ok({"data", "info", data, "--target", "kind"}),
      {"180 samples of 4, float32; 3 classes", "class 1 long:"});
  trained(
      data,
      {"--target", "kind", "--model", "simplenet", "--nproc", "3", "--epochs", "20"});
  EXPECT_THAT(evaluated(), HasSubstr("20/20 (100.00%)"));
  const auto test = predicted();
  ASSERT_EQ(test.size(), 21u);
  EXPECT_EQ(test[0], "index,label,prediction,p_flat,p_long,p_round");
  // The other file lacks the target, one of the colors, and the order of the columns.
  replace_file(scratch_ / "other.csv", "size,color\n0.5,blue\n0.25,red\n");
  const auto other = predicted({"--data", scratch_ / "other.csv"});
  ASSERT_EQ(other.size(), 3u);
  EXPECT_EQ(other[0], "index,prediction,p_flat,p_long,p_round");
  EXPECT_THAT(other[1], StartsWith("0,long,"));
  EXPECT_THAT(other[2], StartsWith("1,round,"));
}

TEST_F(DataFormats, ATableWithNumbersAsTargetTrainsARegression) {
  replace_file(scratch_ / "prices.csv", table(0, 200, "price"));
  const std::string data = scratch_ / "prices.csv";
  EXPECT_THAT(
      expect_ok({"data", "info", data, "--target", "price"}),
      HasSubstr("180 samples of 4, float32; 1 value\n"));
  trained(
      data, {"--target", "price", "--model", "simplenet", "--nproc", "3", "--epochs",
             "20", "--optimizer", "sgd", "--lr", "0.1"});
  const double mae = json_number(last_ + "/summary.json", "test_mae");
  EXPECT_LT(mae, 0.1);
  EXPECT_THAT(evaluated(), HasSubstr(fmt::format("Mean absolute error: {:.4f}", mae)));
  const auto test = predicted();
  ASSERT_EQ(test.size(), 21u);
  EXPECT_EQ(test[0], "index,target_price,price");
  replace_file(scratch_ / "other.csv", table(0, 5, ""));
  const auto other = predicted({"--data", scratch_ / "other.csv"});
  ASSERT_EQ(other.size(), 6u);
  EXPECT_EQ(other[0], "index,price");
  EXPECT_NEAR(std::atof(split(other[2], ',')[1].c_str()), 2 * -0.26 + 1, 0.3);
}

// Numbers around 300,000, which no network reaches in 20 epochs without normalization.
TEST_F(DataFormats, NormalizedTargetsArePredictedInTheUnitsOfTheFile) {
  std::string text = "size,price,rent\n";
  for (int i = 0; i < 200; ++i) {
    const int size = i * 37 % 100;
    text += fmt::format("{},{},{:.1f}\n", size, 250'000 + 1'000 * size, 0.25 * size);
  }
  const std::string data = scratch_ / "houses.csv";
  replace_file(data, text);
  const Arguments arguments = {
      "--target",    "price,rent", "--target-mean", "auto",    "--target-std",
      "auto",        "--model",    "simplenet",     "--nproc", "3",
      "--optimizer", "sgd",        "--lr",          "0.1"};
  const std::string hash = trained(data, with(arguments, {"--epochs", "20"}));
  EXPECT_LT(json_number(last_ + "/summary.json", "test_mae"), 0.01);
  EXPECT_THAT(evaluated(), HasSubstr("Mean absolute error: 0.00"));
  const auto rows = predicted();
  ASSERT_EQ(rows.size(), 21u);
  EXPECT_EQ(rows[0], "index,target_price,target_rent,price,rent");
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto cells = split(rows[i], ',');
    const double price = std::atof(cells[1].c_str());
    EXPECT_EQ(std::fmod(price, 1'000), 0) << rows[i];
    EXPECT_NEAR(std::atof(cells[3].c_str()), price, 500) << rows[i];
    EXPECT_NEAR(std::atof(cells[4].c_str()), std::atof(cells[2].c_str()), 0.2);
  }
  // A resumed run keeps the numbers that the first run measured.
  trained(data, with(arguments, {"--epochs", "10"}));
  expect_ok({"train", "--resume", "auto", "--out", last_, "--epochs", "20"});
  EXPECT_EQ(hash_of(last_), hash);
}

TEST_F(DataFormats, ATextTrainsANetworkThatPredictsBytes) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const std::string network = scratch_ / "bytes.pt";
  checked(run_python(
      {"-c",
       "import sys, torch\n"
       "layers = torch.nn.Sequential(torch.nn.Embedding(256, 16), "
       "torch.nn.Linear(16, 256))\n"
       "torch.jit.script(layers).save(sys.argv[1])",
       network}));
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += "a text about bytes. ";
  }
  replace_file(scratch_ / "data.txt", text);
  const std::string data = scratch_ / "data.txt";
  EXPECT_THAT(
      expect_ok({"data", "info", data, "--block-size", "16"}),
      HasSubstr("train: 449 samples of 16, uint8; 256 classes\n"));
  trained(
      data, {"--model", network, "--block-size", "16", "--nproc", "3", "--epochs", "4",
             "--optimizer", "adam", "--lr", "0.03"});
  const double accuracy = json_number(last_ + "/summary.json", "test_accuracy");
  EXPECT_GT(accuracy, 50);
  EXPECT_THAT(
      evaluated({"--model", network}), HasSubstr(fmt::format("({:.2f}%)", accuracy)));
  const auto predict =
      run({"predict", "--checkpoint", last_, "--trust", "--out", scratch_ / "p.csv"});
  expect_exit(predict, 2, {"use tandem eval"});
  EXPECT_FALSE(file_exists(scratch_ / "p.csv"));
}

// --- several hosts ---

TEST(DataFormatsOnHosts, TwoHostsTrainOnAFolderOfImages) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const Scratch scratch;
  write_digits(scratch / "digits", kTrain, kTest, DigitsFormat::png);
  const auto results = hosts.run_all(
      [&](int host) {
        return with(
            {"train", "--data", scratch / "digits", "--model", "simplenet",
             "--validation", "0.2", "--augment", "crop:2", "--out",
             scratch / ("run" + std::to_string(host))},
            hosts.flags_of(host, 2, 2));
      },
      {{"XDG_CACHE_HOME", scratch / "cache"}});
  for (const auto& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.errors;
  }
  expect_parts(
      results[0].output, {"192 samples", "4 ranks over shm+gloo", "/48 (", "/60 ("});
  // The hosts share the cache here. One process decodes each part.
  const std::string errors = results[0].errors + results[1].errors;
  EXPECT_EQ(lines_after(errors, "decoding 240 images").size(), 1u) << errors;
  EXPECT_EQ(lines_after(errors, "decoding 60 images").size(), 1u) << errors;
}

}  // namespace tandem::data_formats_test
