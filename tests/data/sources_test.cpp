// Data sets from files of all formats.

#include "tandem/data/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/data/idx.h"
#include "tandem/data/normalization.h"
#include "tandem/data/write_digits.h"
#include "tests/core/expect.h"
#include "tests/data/image_files.h"
#include "tests/data/some_samples.h"
#include "tests/scratch.h"

namespace tandem::sources_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A folder for data, and a cache for images.
class Sources : public testing::Test {
 protected:
  Sources() : cache_home_(get_env("XDG_CACHE_HOME")) {
    setenv("XDG_CACHE_HOME", (scratch_ / "cache").c_str(), 1);
    make_directories(folder_);
  }
  ~Sources() override {
    cache_home_ ? setenv("XDG_CACHE_HOME", cache_home_->c_str(), 1)
                : unsetenv("XDG_CACHE_HOME");
  }

  // Writes samples as a .npy file to the folder.
  void write(const std::string& name, const Samples& samples) const {
    write_npy(folder_ + "/" + name + ".npy", samples);
  }

  DataRequest request() const {
    return {folder_};
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_ / "data";

 private:
  const std::optional<std::string> cache_home_;
};

Samples numbers(int64_t count) {
  return make_samples<float>({1}, count, [](int64_t i) { return i; });
}

Samples classes(const std::vector<int64_t>& values) {
  return samples_of({}, values);
}

// Returns the numbers in samples of the shape {1}.
std::vector<float> values_of(const Dataset& data) {
  std::vector<float> values;
  for (int64_t i = 0; i < data.size; ++i) {
    values.push_back(*reinterpret_cast<const float*>(data.inputs.at(data.place_of(i))));
  }
  return values;
}

class DigitFormats : public Sources {
 protected:
  DatasetSplits load(DigitsFormat format) const {
    const std::string folder = scratch_ / name_of(format);
    write_digits(folder, 30, 20, format);
    DataRequest digits(folder);
    if (format == DigitsFormat::csv) {
      digits.options.target = "label";
      digits.options.shape = "1,28,28";
    }
    return load_dataset(digits);
  }
};

TEST_F(DigitFormats, AsNumPyArraysEqualIdxFiles) {
  const auto idx = load(DigitsFormat::idx);
  const auto npy = load(DigitsFormat::npy);
  for (const auto part : {&DatasetSplits::train, &DatasetSplits::test}) {
    EXPECT_EQ((npy.*part).size, (idx.*part).size);
    EXPECT_THAT((npy.*part).inputs.shape, ElementsAre(1, 28, 28));
    EXPECT_TRUE((npy.*part).has_images());
    EXPECT_TRUE((npy.*part).inputs.is_mapped);
    EXPECT_EQ((npy.*part).inputs.bytes, (idx.*part).inputs.bytes);
    EXPECT_EQ((npy.*part).targets.bytes, (idx.*part).targets.bytes);
    EXPECT_EQ((npy.*part).num_classes, 10);
  }
  EXPECT_FALSE(tensor_of(idx.train.inputs, 20).equal(tensor_of(idx.test.inputs, 20)));
}

TEST_F(DigitFormats, AsATableHaveTheNumbersOfIdxFiles) {
  const auto idx = load(DigitsFormat::idx);
  const auto csv = load(DigitsFormat::csv);
  for (const auto part : {&DatasetSplits::train, &DatasetSplits::test}) {
    const Dataset& table = csv.*part;
    EXPECT_EQ(table.size, (idx.*part).size);
    EXPECT_THAT(table.inputs.shape, ElementsAre(1, 28, 28));
    EXPECT_TRUE(tensor_of(table.inputs, table.size)
                    .equal(tensor_of((idx.*part).inputs, table.size).to(at::kFloat)));
    EXPECT_EQ(labels_of(table), labels_of(idx.*part));
    EXPECT_EQ(table.num_classes, 10);
  }
}

TEST_F(DigitFormats, AsPngFilesHaveTheImagesInTheOrderOfClasses) {
  const auto idx = load(DigitsFormat::idx);
  const auto png = load(DigitsFormat::png);
  for (const auto part : {&DatasetSplits::train, &DatasetSplits::test}) {
    const Dataset& images = png.*part;
    const auto labels = labels_of(idx.*part);
    std::vector<int64_t> order(labels.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return labels[static_cast<size_t>(a)] < labels[static_cast<size_t>(b)];
    });
    ASSERT_EQ(images.size, (idx.*part).size);
    EXPECT_THAT(images.inputs.shape, ElementsAre(1, 28, 28));
    const auto pixels = tensor_of(images.inputs, images.size);
    const auto expected = tensor_of((idx.*part).inputs, images.size);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      EXPECT_TRUE(pixels[at].equal(expected[order[i]])) << i;
      EXPECT_EQ(images.targets.integer(at), labels[static_cast<size_t>(order[i])]);
    }
    EXPECT_EQ(images.class_names.size(), 10u);
  }
}

TEST_F(Sources, AFileWithoutAFormatIsReportedWithAllFormats) {
  replace_file(scratch_ / "file.bin", std::string("x"));
  const std::string other = scratch_ / "other";
  make_directories(other);
  for (const char* name : {"/a.tsv", "/b.tsv", "/c.tsv", "/d.tsv", "/e.tsv"}) {
    replace_file(other + name, std::string("x"));
  }
  for (const auto& [path, found] : std::vector<std::pair<std::string, std::string>>{
           {scratch_ / "file.bin", "has no known format"},
           {folder_, "is an empty folder"},
           {other,
            "contains nothing in a known format, only a.tsv, b.tsv, c.tsv and 2 "
            "more"}}) {
    expect_error<DataError>(
        [&, &path = path] { return load_dataset(path); },
        {"[data] '" + path + "' " + found + ", expected", "CIFAR-10", "IDX", "x.npy",
         ".csv", ".txt", "a folder per class"});
  }
}

TEST_F(Sources, PathsAndNamesThatDoNotExistAreReported) {
  std::filesystem::create_symlink("gone", scratch_ / "link");
  for (const std::string& path : {scratch_ / "missing", scratch_ / "link"}) {
    expect_error<ConfigError>(
        [&] { return load_dataset(path); }, {path, "digits, mnist"});
  }
  expect_error<ConfigError>(
      [] { return load_dataset("mnits"); }, {"did you mean 'mnist'", "digits"});
}

TEST_F(Sources, ARunRecordsAnAbsolutePathInUtf8) {
  const auto before = std::filesystem::current_path();
  const auto recorded = [&](const std::string& folder, const std::string& name) {
    make_directories(folder);
    std::filesystem::current_path(folder);
    Dataset data;
    data.name = name;
    data.is_loadable = true;
    const auto path = recorded_name(data);
    std::filesystem::current_path(before);
    return path;
  };
  EXPECT_EQ(recorded(folder_, "./x.csv"), folder_ + "/x.csv");
  EXPECT_EQ(recorded(folder_, "/a/x.csv"), "/a/x.csv");
  EXPECT_EQ(recorded(folder_, "../x.csv"), folder_ + "/../x.csv");
  EXPECT_EQ(recorded(folder_, "mnist"), "mnist");
  EXPECT_EQ(recorded(folder_ + "/K\xf6ln", "x.csv"), "x.csv");
}

TEST_F(Sources, IdxFilesOfFourDimensionsAreColorImages) {
  const auto images = [](int64_t count) {
    const auto pixels =
        make_samples<uint8_t>({3, 2, 4}, count, [](int64_t i) { return i * 7; });
    return IdxArray{{count, 3, 2, 4}, {pixels.bytes.begin(), pixels.bytes.end()}};
  };
  write_idx(folder_ + "/train-images-idx4-ubyte", images(3));
  write_idx(folder_ + "/train-labels-idx1-ubyte", {{3}, {0, 2, 1}});
  write_idx(folder_ + "/t10k-images-idx4-ubyte.gz", images(2));
  write_idx(folder_ + "/t10k-labels-idx1-ubyte", {{2}, {1, 0}});
  const auto splits = load_dataset(folder_);
  EXPECT_EQ(splits.train.size, 3);
  EXPECT_THAT(splits.train.inputs.shape, ElementsAre(3, 2, 4));
  EXPECT_EQ(splits.train.inputs.bytes, Bytes(images(3).values));
  EXPECT_EQ(splits.test.inputs.bytes, Bytes(images(2).values));
  EXPECT_EQ(splits.train.num_classes, 3);
}

TEST_F(Sources, ArraysHaveTypesAndShapesOfTheirFiles) {
  const auto zero = [](int64_t) { return 0; };
  struct Case {
    Samples inputs;
    std::vector<int64_t> shape;
  };
  for (const auto& [inputs, shape] : std::vector<Case>{
           {make_samples<uint8_t>({4, 5}, 10, zero), {1, 4, 5}},
           {make_samples<uint8_t>({3, 4, 5}, 10, zero), {3, 4, 5}},
           {make_samples<float>({4, 5}, 10, zero), {4, 5}},
           {make_samples<float>({}, 10, zero), {}},
           {make_samples<int64_t>({7}, 10, zero), {7}}}) {
    write("x", inputs);
    write("y", classes({0, 1, 2, 0, 1, 2, 0, 1, 2, 299}));
    const auto splits = load_dataset(folder_);
    EXPECT_EQ(splits.train.inputs.type, inputs.type);
    EXPECT_EQ(splits.train.inputs.shape, shape);
    EXPECT_EQ(splits.train.num_classes, 300);
    EXPECT_EQ(splits.test.size, 1);
  }
}

TEST_F(Sources, BoolInputsAreTheNumbersZeroAndOne) {
  const auto bits =
      make_samples<uint8_t>({3, 4, 5}, 10, [](int64_t i) { return i % 2; });
  write("x", bits);
  write("y", classes({0, 1, 2, 0, 1, 2, 0, 1, 2, 2}));
  const std::string file = folder_ + "/x.npy";
  std::string content = read_file(file);
  content.replace(content.find("|u1"), 3, "|b1");
  replace_file(file, content);
  DataRequest inputs(file);
  const auto data = load_inputs(inputs);
  EXPECT_EQ(data.inputs.type, ElementType::float32);
  EXPECT_TRUE(tensor_of(data.inputs, 10).equal(tensor_of(bits, 10).to(at::kFloat)));
  EXPECT_EQ(load_dataset(folder_).train.inputs.type, ElementType::float32);
}

TEST_F(Sources, ByteInputsThatAreNotImagesAreReportedAsNumbers) {
  write("x", make_samples<uint8_t>({4}, 10, [](int64_t i) { return i; }));
  write("y", classes({0, 1, 2, 0, 1, 2, 0, 1, 2, 2}));
  testing::internal::CaptureStderr();
  EXPECT_TRUE(load_dataset(folder_).train.has_byte_numbers());
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("are uint8 of the shape 4"), HasSubstr("not divided by 255")));
}

TEST_F(Sources, TargetsOfArraysAreClassesOrValues) {
  write("train_x", numbers(6));
  write("test_x", numbers(6));
  const auto zero = [](int64_t) { return 0; };
  struct Case {
    Samples targets;
    std::vector<int64_t> shape;
    bool has_classes;
    int64_t num_classes;
  };
  for (const auto& [targets, shape, has_classes, num_classes] : std::vector<Case>{
           {make_samples<int64_t>({1}, 6, zero), {}, true, 1},
           {make_samples<uint8_t>({}, 6, [](int64_t i) { return i; }), {}, true, 6},
           {make_samples<int64_t>({4}, 6, [](int64_t i) { return i; }), {4}, true, 24},
           {make_samples<float>({}, 6, zero), {1}, false, 1},
           {make_samples<float>({2, 3}, 6, zero), {2, 3}, false, 6}}) {
    write("train_y", targets);
    write("test_y", targets);
    const auto splits = load_dataset(folder_);
    for (const auto* data : {&splits.train, &splits.test}) {
      EXPECT_EQ(data->targets.shape, shape);
      EXPECT_EQ(data->has_classes(), has_classes);
      EXPECT_EQ(data->num_classes, num_classes);
    }
  }
}

TEST_F(Sources, WholeNumbersBecomeValuesForALossOfValues) {
  write("x", numbers(10));
  auto wants_values = request();
  wants_values.whole_targets = WholeTargets::values;
  write("y", make_samples<int64_t>({}, 10, [](int64_t i) { return i - 4; }));
  const auto single = load_dataset(wants_values).train;
  EXPECT_THAT(single.targets.shape, ElementsAre(1));
  EXPECT_FALSE(single.has_classes());
  EXPECT_EQ(single.num_classes, 1);
  for (int64_t i = 0; i < single.size; ++i) {
    const auto target =
        *reinterpret_cast<const float*>(single.targets.at(single.place_of(i)));
    EXPECT_EQ(target, values_of(single)[static_cast<size_t>(i)] - 4);
  }
  write("y", make_samples<uint8_t>({3}, 10, [](int64_t i) { return i % 2; }));
  const auto several = load_dataset(wants_values).train;
  EXPECT_THAT(several.targets.shape, ElementsAre(3));
  EXPECT_EQ(several.num_classes, 3);
}

TEST_F(Sources, ArraysOfAFolderMayHaveAnyOfTheNames) {
  for (const auto& [x, y] : std::vector<std::pair<std::string, std::string>>{
           {"x", "y"}, {"train_x", "train_y"}, {"x_train", "y_train"}}) {
    write(x, numbers(10));
    write(y, classes({0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(load_dataset(folder_).train.size, 9);
    remove_all(folder_);
    make_directories(folder_);
  }
}

TEST_F(Sources, AnNpzFileHasTheArraysOfAFolder) {
  write("x", numbers(20));
  write("y", classes(std::vector<int64_t>(20, 1)));
  // Other members are ignored, also an array of Python objects.
  write("names", numbers(20));
  std::string objects = read_file(folder_ + "/names.npy");
  replace_file(folder_ + "/names.npy", objects.replace(objects.find("<f4"), 3, "|O "));
  replace_file(folder_ + "/readme.txt", std::string("text"));
  const std::string path = scratch_ / "all.npz";
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE, nullptr);
  ASSERT_NE(archive, nullptr);
  for (const char* name : {"names.npy", "readme.txt", "x.npy", "y.npy"}) {
    const std::string file = folder_ + "/" + name;
    zip_file_add(
        archive, name, zip_source_file(archive, file.c_str(), 0, -1), ZIP_FL_ENC_UTF_8);
  }
  ASSERT_EQ(zip_close(archive), 0);
  const auto files = load_dataset(folder_);
  const auto npz = load_dataset(path);
  EXPECT_FALSE(npz.train.inputs.is_mapped);
  EXPECT_EQ(values_of(npz.train), values_of(files.train));
  EXPECT_EQ(values_of(npz.test), values_of(files.test));
  EXPECT_EQ(labels_of(npz.train), labels_of(files.train));
}

TEST_F(Sources, ArraysThatDoNotMatchAreReported) {
  const auto refusal = [&] {
    return error_of<DataError>([&] { return load_dataset(folder_); });
  };
  write("x", numbers(5));
  EXPECT_THAT(refusal(), HasSubstr("has no array train_y or y_train or y"));
  write("y", classes({0, 1, 0, 1}));
  EXPECT_THAT(
      refusal(), HasSubstr("'" + folder_ + "' has 5 inputs, but 4 targets, expected"));
  const float number = 3;
  write_npy(
      folder_ + "/y.npy", ElementType::float32, {},
      reinterpret_cast<const uint8_t*>(&number));
  EXPECT_THAT(refusal(), HasSubstr("targets in '" + folder_ + "' are a single number"));
  write("y", classes({0, 1, 0, 1, 0}));
  write("test_x", make_samples<float>({2}, 2, [](int64_t) { return 0; }));
  EXPECT_THAT(refusal(), HasSubstr("has no array test_y or y_test"));
  write("test_y", classes({0, 1}));
  EXPECT_THAT(
      refusal(),
      HasSubstr("inputs of the training part are float32 1, of the test part "
                "float32 2, expected equal types and shapes"));
  write("test_x", make_samples<int64_t>({1}, 2, [](int64_t) { return 0; }));
  EXPECT_THAT(refusal(), HasSubstr("of the test part int64 1"));
  write("test_x", numbers(2));
  write("test_y", make_samples<float>({}, 2, [](int64_t) { return 0; }));
  EXPECT_THAT(
      refusal(), HasSubstr("targets of the training part are int64 number, of the test "
                           "part float32 1"));
}

TEST_F(Sources, OneHotTargetsAreReportedUnlessALossIsSet) {
  write("x", numbers(12));
  const auto hot = [](int64_t i) { return i % 3 == i / 3 % 3 ? 1 : 0; };
  for (const auto& targets :
       {make_samples<uint8_t>({3}, 12, hot), make_samples<int64_t>({3}, 12, hot),
        make_samples<float>({3}, 12, hot)}) {
    write("y", targets);
    expect_error<DataError>(
        [&] { return load_dataset(folder_); },
        {"targets of '" + folder_ + "' are one-hot rows of 3 numbers", "y.argmax(1)"});
    auto numbers = request();
    numbers.whole_targets = WholeTargets::values;
    EXPECT_THAT(load_dataset(numbers).train.targets.shape, ElementsAre(3));
  }
  write("y", make_samples<int64_t>({3}, 12, [&](int64_t i) {
          return i == 33 ? 1 : hot(i);
        }));
  EXPECT_NO_THROW(load_dataset(folder_));
}

TEST_F(Sources, ImagesWithChannelsLastAreReportedUnlessAShapeIsSet) {
  const auto zero = [](int64_t) { return 0; };
  write("y", classes({0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  for (const int64_t channels : {1, 3, 4}) {
    write("x", make_samples<uint8_t>({8, 9, channels}, 10, zero));
    expect_error<DataError>(
        [&] { return load_dataset(folder_); },
        {"are 8x9x" + std::to_string(channels), "expected channels x height x width",
         "np.moveaxis(x, 3, 1)"});
  }
  auto shaped = request();
  shaped.options.shape = "8,9,4";
  EXPECT_THAT(load_dataset(shaped).train.inputs.shape, ElementsAre(8, 9, 4));
  write("x", make_samples<float>({8, 9, 3}, 10, zero));
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(load_dataset(folder_));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("are 8x9x3"));
}

TEST_F(Sources, TheShapeMustFitTheSamples) {
  const auto load = [&](const std::string& shape) {
    write("x", make_samples<float>({24}, 10, [](int64_t i) { return i; }));
    write("y", classes({0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
    auto shaped = request();
    shaped.options.shape = shape;
    return load_dataset(shaped).train.inputs.shape;
  };
  EXPECT_THAT(load("2,3,4"), ElementsAre(2, 3, 4));
  EXPECT_THAT(load("24"), ElementsAre(24));
  for (const char* shape :
       {"2,3", "2,3,5", "0,24", "-2,-12", "x", "2,,12", "24.0",
        "4294967296,4294967296,24"}) {
    expect_error<ConfigError>(
        [&] { load(shape); },
        {std::string("[data] shape is '") + shape + "', expected sizes", "24 numbers"});
  }
}

TEST_F(Sources, ClassesMustBeThoseOfTheTrainingPart) {
  write("train_x", numbers(4));
  write("train_y", classes({0, 3, -100, 255}));
  write("test_x", numbers(2));
  write("test_y", classes({1, 4}));
  const auto refusal = [&](int64_t ignored) {
    auto ignoring = request();
    ignoring.ignore_index = ignored;
    return error_of<DataError>([&] { return load_dataset(ignoring); });
  };
  EXPECT_THAT(refusal(-1), HasSubstr("the target of sample 2 is -100, expected"));
  EXPECT_THAT(refusal(-100), HasSubstr("(no error)"));
  write("train_y", classes({0, 3, 2, 255}));
  EXPECT_THAT(
      refusal(255), HasSubstr("a test label is 4, expected at most 3 as in the "
                              "training labels"));
  write("test_y", classes({-2, 3}));
  EXPECT_THAT(refusal(255), HasSubstr("the target of sample 0 is -2"));
  write("test_y", classes({255, 3}));
  auto ignoring = request();
  ignoring.ignore_index = 255;
  const auto splits = load_dataset(ignoring);
  EXPECT_EQ(splits.train.num_classes, 4);
  EXPECT_EQ(splits.test.num_classes, 4);
}

// The test part of token arrays may have tokens that the training part lacks.
TEST_F(Sources, ClassesOfPositionsAreThoseOfAllParts) {
  write("train_x", make_samples<int64_t>({4}, 5, [](int64_t i) { return i; }));
  write("train_y", make_samples<int64_t>({4}, 5, [](int64_t i) { return i; }));
  write("test_x", make_samples<int64_t>({4}, 2, [](int64_t i) { return i; }));
  write("test_y", make_samples<int64_t>({4}, 2, [](int64_t i) { return 40 + i; }));
  const auto splits = load_dataset(folder_);
  EXPECT_EQ(splits.train.num_classes, 48);
  EXPECT_EQ(splits.test.num_classes, 48);
}

// Each class has one sample, so the test part has classes that the rest lacks.
TEST_F(Sources, ClassesAreCountedBeforeTheTestPartIsHeldOut) {
  std::vector<int64_t> labels(20);
  std::iota(labels.begin(), labels.end(), 0);
  write("x", numbers(20));
  write("y", classes(labels));
  for (const double fraction : {0.1, 0.3, 0.5, 0.9}) {
    auto held_out = request();
    held_out.options.test_fraction = fraction;
    const auto splits = load_dataset(held_out);
    EXPECT_EQ(splits.train.num_classes, 20);
    EXPECT_EQ(splits.test.num_classes, 20);
  }
}

void expect_disjoint(const DatasetSplits& splits, size_t size) {
  std::set<float> all;
  for (const auto part : kDatasetParts) {
    for (const float value : values_of(splits.*part)) {
      EXPECT_TRUE(all.insert(value).second) << value;
    }
  }
  EXPECT_EQ(all.size(), size);
}

TEST_F(Sources, TestPartLimitAndValidationPartAreDisjoint) {
  write("x", numbers(100));
  write("y", classes(std::vector<int64_t>(100, 0)));
  auto all = request();
  all.options.test_fraction = 0.2;
  all.options.validation = 0.1;
  const auto splits = load_dataset(all);
  EXPECT_EQ(splits.train.size, 72);
  EXPECT_EQ(splits.test.size, 20);
  EXPECT_EQ(splits.validation.size, 8);
  expect_disjoint(splits, 100);

  auto limited = all;
  limited.options.limit = 50;
  const auto fewer = load_dataset(limited);
  EXPECT_EQ(fewer.train.size, 45);
  EXPECT_EQ(fewer.test.size, 20);
  EXPECT_EQ(fewer.validation.size, 5);
  expect_disjoint(fewer, 70);
  EXPECT_EQ(values_of(fewer.test), values_of(splits.test));

  auto seeded = all;
  seeded.seed = 1;
  const auto other = load_dataset(seeded);
  EXPECT_EQ(values_of(other.test), values_of(splits.test));
  EXPECT_NE(values_of(other.validation), values_of(splits.validation));
  expect_disjoint(other, 100);

  auto whole = request();
  whole.for_training = false;
  EXPECT_EQ(load_dataset(whole).train.size, 100);
  EXPECT_EQ(load_dataset(whole).test.size, 0);
}

TEST_F(Sources, PartsWithoutSamplesAreReported) {
  write("x", numbers(10));
  write("y", classes(std::vector<int64_t>(10, 0)));
  auto held_out = request();
  held_out.options.validation = 0.01;
  expect_error<ConfigError>(
      [&] { return load_dataset(held_out); },
      {"[data] validation is 0.01, which is 0 of the 9 samples"});
  held_out.options.test_fraction = 0.02;
  expect_error<ConfigError>(
      [&] { return load_dataset(held_out); },
      {"[data] test_fraction is 0.02, which is 0 of the 10 samples"});
}

TEST_F(Sources, NormalizationIsMeasuredOnTheTrainingPart) {
  write("x", numbers(100));
  write("y", classes(std::vector<int64_t>(100, 0)));
  auto measured = request();
  measured.options.validation = 0.1;
  const auto splits = load_dataset(measured);
  const auto expected = measure_normalization(splits.train);
  for (const auto part : kDatasetParts) {
    EXPECT_EQ((splits.*part).mean, expected.mean);
    EXPECT_EQ((splits.*part).std, expected.std);
  }
  measured.options.mean = 0.5;
  EXPECT_THAT(load_dataset(measured).train.mean, testing::SizeIs(1));
  measured.options.std = 2;
  EXPECT_THAT(load_dataset(measured).train.mean, IsEmpty());
  // Images in IDX files have the values of MNIST.
  write_digits(scratch_ / "digits", 20, 10);
  DataRequest digits(scratch_ / "digits");
  EXPECT_THAT(load_dataset(digits).train.mean, IsEmpty());
  digits.options.mean = ChannelValues::parse("auto").value();
  const auto images = load_dataset(digits).train;
  EXPECT_EQ(images.mean, measure_normalization(images).mean);
}

TEST_F(Sources, ATextIsASequenceOfBytes) {
  std::string text;
  for (int i = 0; i < 101; ++i) {
    text += static_cast<char>('a' + i % 26);
  }
  replace_file(scratch_ / "some.txt", text);
  DataRequest single(scratch_ / "some.txt");
  single.options.block_size = 10;
  const auto splits = load_dataset(single);
  EXPECT_EQ(splits.train.size, 9);
  EXPECT_EQ(splits.test.size, 1);
  for (const auto* data : {&splits.train, &splits.test}) {
    EXPECT_TRUE(data->is_sequence && data->tokens && data->has_indices());
    EXPECT_EQ(data->num_classes, 256);
    EXPECT_THAT(data->inputs.shape, ElementsAre(10));
    for (int64_t i = 0; i < data->size; ++i) {
      const std::string input(
          reinterpret_cast<const char*>(data->inputs.at(data->place_of(i))), 10);
      const std::string target(
          reinterpret_cast<const char*>(data->targets.at(data->place_of(i))), 10);
      const auto start = static_cast<size_t>(10 * (data == &splits.test ? 9 : i));
      EXPECT_EQ(input, text.substr(start, 10));
      EXPECT_EQ(target, text.substr(start + 1, 10));
    }
  }

  replace_file(folder_ + "/train.txt", text);
  replace_file(folder_ + "/test.txt", text.substr(50));
  auto both = request();
  both.options.block_size = 25;
  EXPECT_EQ(load_dataset(both).train.size, 4);
  EXPECT_EQ(load_dataset(both).test.size, 2);
  both.options.block_size = 51;
  expect_error<DataError>(
      [&] { return load_dataset(both); },
      {"test.txt' has 51 bytes, expected more than 51 for a sample"});
}

// Writes images of 6 x 8 pixels. An image's number is its seed.
void write_images(const std::string& folder, const std::vector<int>& images) {
  make_directories(folder);
  for (const int image : images) {
    write_png(
        folder + "/" + std::to_string(image) + ".png", draw_picture(6, 8, 3, image));
  }
}

TEST_F(Sources, ImageFoldersMayHaveNoTestPart) {
  write_images(folder_ + "/cat", {0, 1, 2, 3, 4});
  write_images(folder_ + "/dog", {5, 6, 7, 8, 9});
  auto images = request();
  images.options.test_fraction = 0.4;
  const auto splits = load_dataset(images);
  EXPECT_EQ(splits.train.size, 6);
  EXPECT_EQ(splits.test.size, 4);
  for (const auto* data : {&splits.train, &splits.test}) {
    EXPECT_THAT(data->inputs.shape, ElementsAre(3, 6, 8));
    EXPECT_THAT(data->class_names, ElementsAre("cat", "dog"));
    EXPECT_EQ(data->num_classes, 2);
  }
}

TEST_F(Sources, TheTestPartOfImagesMayLackClassesButHasNoOthers) {
  for (const char* name : {"/ant", "/bee", "/cat"}) {
    write_images(folder_ + "/train" + name, {0, 1});
  }
  write_images(folder_ + "/val/cat", {2});
  const auto splits = load_dataset(folder_);
  EXPECT_THAT(labels_of(splits.test), ElementsAre(2));
  EXPECT_THAT(splits.test.class_names, ElementsAre("ant", "bee", "cat"));
  EXPECT_EQ(splits.test.num_classes, 3);

  // With a folder test, val is the validation part.
  write_images(folder_ + "/test/bee", {3, 4});
  const auto three = load_dataset(folder_);
  EXPECT_THAT(labels_of(three.test), ElementsAre(1, 1));
  EXPECT_THAT(labels_of(three.validation), ElementsAre(2));
  EXPECT_EQ(three.validation.num_classes, 3);
  write_images(folder_ + "/test/dog", {5});
  expect_error<DataError>(
      [&] { return load_dataset(folder_); },
      {"has the class 'dog', expected a class of the training part"});
}

TEST_F(Sources, FoldersOfPartsHaveTheUsualNamesInAnyCase) {
  write_images(folder_ + "/Training/cat", {0, 1});
  write_images(folder_ + "/Training/dog", {2, 3, 4});
  for (const char* name : {"val", "VALID", "Validation", "TEST", "testing"}) {
    const std::string part = folder_ + "/" + name;
    write_images(part + "/dog", {5});
    const auto splits = load_dataset(folder_);
    EXPECT_EQ(splits.train.size, 5) << name;
    EXPECT_THAT(labels_of(splits.test), ElementsAre(1)) << name;
    EXPECT_EQ(splits.validation.size, 0) << name;
    remove_all(part);
  }
  write_images(folder_ + "/val/dog", {5});
  write_images(folder_ + "/valid/dog", {6});
  expect_error<DataError>(
      [&] { return load_dataset(folder_); },
      {"/val' and '", "/valid' are the same part", "rename or remove"});
}

TEST_F(Sources, OtherFoldersThanThoseOfPartsAreReported) {
  write_images(folder_ + "/train/cat", {0, 1});
  write_images(folder_ + "/train/dog", {2, 3});
  write_images(folder_ + "/test/dog", {4});
  write_images(folder_ + "/extra/dog", {5});
  make_directories(folder_ + "/.hidden");
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_dataset(folder_).train.size, 4);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr(
          "[data] folder extra in '" + folder_ + "' is ignored, expected train, val"));
}

TEST_F(Sources, AClassCanHaveTheNameTrain) {
  write_images(folder_ + "/bus", {0, 1, 2});
  write_images(folder_ + "/train", {3, 4, 5});
  EXPECT_THAT(load_dataset(folder_).train.class_names, ElementsAre("bus", "train"));
}

TEST_F(Sources, AFolderAboveTheClassFoldersIsReported) {
  write_images(folder_ + "/images/cat", {0, 1});
  write_images(folder_ + "/images/dog", {2, 3});
  expect_error<DataError>(
      [&] { return load_dataset(folder_); },
      {"'" + folder_ + "' has only the folder 'images'", "folders such as 'cat'",
       "set --data to " + folder_ + "/images"});
  // A checkpoint of another data set can be evaluated on one class.
  DataRequest evaluation(folder_);
  evaluation.for_training = false;
  EXPECT_EQ(load_dataset(evaluation).train.size, 4);
}

TEST_F(Sources, FoldersOfPartsWithoutATrainingPartAreReported) {
  write_images(folder_ + "/test/cat", {0, 1});
  write_images(folder_ + "/Val/dog", {2, 3});
  expect_error<DataError>(
      [&] { return load_dataset(folder_); },
      {"folder Val and test, but no folder train", "rename"});
}

TEST_F(Sources, ASingleClassIsReported) {
  write_images(folder_ + "/cat", {0, 1, 2, 3, 4});
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_dataset(folder_).train.num_classes, 1);
  expect_parts(
      testing::internal::GetCapturedStderr(),
      {"learns nothing", "'cat', expected two or more"});
}

TEST_F(Sources, ImagesWithoutClassFoldersAreReported) {
  write_images(folder_, {0, 1, 2});
  expect_error<DataError>(
      [&] { return load_dataset(folder_); },
      {"has images without classes, expected one folder per class", "put the images"});
}

TEST_F(Sources, ALimitKeepsTheClassesOfSortedFiles) {
  write_images(folder_ + "/train/ant", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  write_images(folder_ + "/train/bee", {0, 1, 2, 3, 4});
  write_images(folder_ + "/train/cat", {0, 1, 2, 3, 4});
  write_images(folder_ + "/test/cat", {5});
  EXPECT_THAT(
      labels_of(load_dataset(folder_, 10).train),
      ElementsAre(0, 0, 0, 0, 0, 1, 1, 1, 2, 2));

  const std::string tables = scratch_ / "tables";
  make_directories(tables);
  for (const char* name : {"/train.csv", "/test.csv"}) {
    replace_file(
        tables + name,
        std::string("x,y\n1,0\n2,0\n3,0\n4,1\n5,1\n6,1\n7,2\n8,2\n9,2\n"));
  }
  DataRequest table(tables);
  table.options.target = "y";
  table.options.limit = 3;
  EXPECT_THAT(labels_of(load_dataset(table).train), ElementsAre(0, 1, 2));
}

// Existing runs with a limit keep their samples.
TEST_F(Sources, ALimitOfIdxFilesKeepsTheFirstSamples) {
  write_digits(scratch_ / "digits", 30, 20);
  const auto all = load_dataset(scratch_ / "digits");
  const auto limited = load_dataset(scratch_ / "digits", 7);
  auto first = labels_of(all.train);
  first.resize(7);
  EXPECT_EQ(labels_of(limited.train), first);
  EXPECT_EQ(limited.train.inputs.bytes.data()[0], all.train.inputs.bytes.data()[0]);
  EXPECT_EQ(limited.test.size, 7);
  EXPECT_EQ(limited.train.num_classes, 10);
  const auto whole = load_dataset(scratch_ / "digits", 100);
  EXPECT_EQ(whole.train.size, 30);
  EXPECT_EQ(whole.test.size, 20);
}

TEST_F(Sources, TablesTextsAndArraysHaveValidationParts) {
  for (const char* name : {"/train.csv", "/Valid.csv", "/test.csv"}) {
    replace_file(folder_ + name, std::string("x,y\n1,0\n2,1\n3,1\n"));
  }
  auto table = request();
  table.options.target = "y";
  const auto rows = load_dataset(table);
  EXPECT_EQ(rows.validation.size, 3);
  EXPECT_EQ(rows.test.size, 3);
  table.options.validation = 0.3;
  expect_error<ConfigError>(
      [&] { return load_dataset(table); },
      {"has a validation part of 3 samples; leave out --validation"});
  remove_all(folder_ + "/test.csv");
  EXPECT_EQ(load_dataset(table).test.size, 3);

  const std::string texts = scratch_ / "texts";
  make_directories(texts);
  for (const char* name : {"/train.txt", "/val.txt"}) {
    replace_file(texts + name, std::string(200, 'a'));
  }
  EXPECT_EQ(load_dataset(texts).test.size, 3);

  write("train_x", numbers(6));
  write("train_y", classes({0, 1, 0, 1, 0, 1}));
  write("x_val", numbers(4));
  write("y_val", classes({0, 1, 0, 1}));
  EXPECT_EQ(load_dataset(folder_).test.size, 4);
  write("test_x", numbers(5));
  write("test_y", classes({0, 1, 0, 1, 0}));
  EXPECT_EQ(load_dataset(folder_).validation.size, 4);
  EXPECT_EQ(load_dataset(folder_).test.size, 5);
}

TEST_F(Sources, ImagesOfBothPartsHaveOneSize) {
  write_images(folder_ + "/train/a", {0, 1});
  make_directories(folder_ + "/test/a");
  write_png(folder_ + "/test/a/0.png", draw_picture(8, 6, 3));
  expect_error<DataError>(
      [&] { return load_dataset(folder_); },
      {"/test' are 3x8x6, training images 3x6x8, expected equal sizes"});
  auto resized = request();
  resized.options.image_size = "5x4";
  EXPECT_THAT(load_dataset(resized).test.inputs.shape, ElementsAre(3, 5, 4));
  resized.options.image_size = "4";
  EXPECT_THAT(load_dataset(resized).train.inputs.shape, ElementsAre(3, 4, 4));
  for (const char* size : {"0", "x4", "4x5x6", "-4", "0x5", "16384", "16385", "big"}) {
    resized.options.image_size = size;
    expect_error<ConfigError>(
        [&] { return load_dataset(resized); },
        {std::string("image_size is '") + size + "', expected a size"});
  }
  DataRequest channels(folder_);
  channels.channels = 2;
  expect_error<ConfigError>(
      [&] { return load_dataset(channels); }, {"channels is 2, expected 0, 1 or 3"});
}

}  // namespace tandem::sources_test
