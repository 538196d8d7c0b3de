// Broken data sets: `tandem data` and `tandem train` on them.

#include "bad_input.h"

namespace tandem::data_test {

namespace fs = std::filesystem;

const std::string kImages = "data/train-images-idx3-ubyte";
const std::string kLabels = "data/train-labels-idx1-ubyte";
const std::string kTestImages = "data/t10k-images-idx3-ubyte";
const std::string kTestLabels = "data/t10k-labels-idx1-ubyte";

const std::vector<std::string> kCheck = {"data", "check", "@/data"};
const std::vector<std::string> kMake = {"data", "make",   "digits", "--train",
                                        "64",   "--test", "64",     "--out"};

std::vector<std::string> operator+(
    std::vector<std::string> left, const std::vector<std::string>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Prepare patched(const std::string& name, size_t at, const std::string& bytes) {
  return data_and([=](const Stage& stage) { stage.patch(name, at, bytes); });
}

Prepare cut(const std::string& name, size_t size) {
  return data_and([=](const Stage& stage) { stage.cut(name, size); });
}

void gzip(const Stage& stage, const std::string& name) {
  ASSERT_TRUE(run_command({"gzip", stage / name}).status.ok());
}

void flat_images(const Stage& stage) {
  stage.data("data", 1, 784);
}

void folders_for_files(const Stage& stage) {
  for (const auto& name : {kImages, kLabels, kTestImages, kTestLabels}) {
    fs::create_directories(stage / name);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Idx, BadInput,
    testing::Values(
        BadInputCase{
            "Truncated",
            kCheck,
            1,
            {"@/" + kImages, "984 of the 50176", "fetch it again"},
            cut(kImages, 1000)},
        BadInputCase{
            "TruncatedForThreeRanks",
            train({"--nproc", "3", "--out", "@/out"}),
            1,
            {"@/" + kImages, "984 of the 50176"},
            cut(kImages, 1000)},
        BadInputCase{
            "TruncatedForThreads",
            train({"--nproc", "4", "--ranks", "thread", "--out", "@/out"}),
            1,
            {"@/" + kImages, "984 of the 50176"},
            cut(kImages, 1000)},
        BadInputCase{
            "TornHeader",
            kCheck,
            1,
            {"@/" + kImages, "inside its header"},
            cut(kImages, 10)},
        BadInputCase{
            "Oversized",
            kCheck,
            1,
            {"@/" + kImages, "goes on after the 50176"},
            data_and([](const Stage& stage) {
              stage.write(kImages, stage.read(kImages) + "x");
            })},
        BadInputCase{
            "Empty", kCheck, 1, {"@/" + kLabels, "too short"}, cut(kLabels, 0)},
        BadInputCase{
            "TornGzip",
            kCheck,
            1,
            {"@/" + kImages + ".gz", "ends in the middle"},
            data_and([](const Stage& stage) {
              gzip(stage, kImages);
              stage.cut(kImages + ".gz", fs::file_size(stage / (kImages + ".gz")) / 2);
            })},
        BadInputCase{
            "DamagedGzip",
            kCheck,
            1,
            {"@/" + kImages + ".gz", "is damaged"},
            data_and([](const Stage& stage) {
              gzip(stage, kImages);
              stage.patch(kImages + ".gz", 100, std::string(20, '\xff'));
            })},
        BadInputCase{
            "WrongMagic",
            kCheck,
            1,
            {"@/" + kImages, "255 0 8", "expected 0 0 8"},
            patched(kImages, 0, "\xff")},
        BadInputCase{
            "ImagesAndLabelsSwapped",
            kCheck,
            1,
            {"@/" + kImages, "has 1 dimensions, expected 3", "swapped"},
            data_and([](const Stage& stage) {
              stage.write(kImages, stage.read(kLabels));
            })},
        BadInputCase{
            "AbsurdDimension",
            kCheck,
            1,
            {"@/" + kImages, "4294967295x28x28", "fetch it again"},
            patched(kImages, 4, "\xff\xff\xff\xff")},
        BadInputCase{
            "DimensionOfZero",
            kCheck,
            1,
            {"@/" + kImages, "0x28x28"},
            patched(kImages, 4, std::string(4, '\0'))},
        BadInputCase{
            "FewerLabelsThanImages",
            train({"--nproc", "3"}),
            1,
            {"holds 64 images", "@/" + kLabels, "63 labels"},
            data_and([](const Stage& stage) {
              stage.patch(kLabels, 7, "\x3f");
              stage.cut(kLabels, 8 + 63);
            })},
        BadInputCase{
            "TestLabelOutOfRange",
            kCheck,
            1,
            {"@/data", "a test label is 200", "training labels end at 9"},
            patched(kTestLabels, 20, "\xc8")},
        BadInputCase{
            "MnistLabelOutOfRange",
            {"data", "check", "mnist"},
            1,
            {"@/data", "label of 200", "only 0 to 9"},
            patched(kLabels, 20, "\xc8"),
            {{"TANDEM_DATA", "@/data"}}},
        BadInputCase{
            "TestImagesOfAnotherSize",
            train({}),
            1,
            {"@/data", "training images are 28x28, test images 14x56"},
            patched(kTestImages, 8, std::string("\0\0\0\x0e\0\0\0\x38", 8))},
        BadInputCase{
            "ImagesTooSmallForTheModel",
            train({"--model", "net"}),
            2,
            {"1x784", "too small", "--model"},
            &flat_images},
        BadInputCase{
            "ImagesTooSmallForFourRanks",
            train({"--model", "net", "--nproc", "4"}),
            2,
            {"1x784", "too small", "--model"},
            &flat_images},
        BadInputCase{
            "MissingFile",
            kCheck,
            1,
            {"@/data", "t10k-labels-idx1-ubyte", "--data"},
            data_and([](const Stage& stage) { fs::remove(stage / kTestLabels); })},
        BadInputCase{
            "FoldersForFiles",
            kCheck,
            1,
            {"@/" + kImages, "directory"},
            &folders_for_files}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    DataSet, BadInput,
    testing::Values(
        BadInputCase{"MissingFolder", kCheck, 2, {"@/data", "digits, mnist"}},
        BadInputCase{
            "MissingFolderForFourRanks",
            train({"--nproc", "4"}),
            2,
            {"@/data", "digits, mnist"}},
        BadInputCase{
            "FileForAFolder",
            {"data", "check", "@/" + kImages},
            1,
            {"@/" + kImages, "is not a folder", "--data"},
            &with_data},
        BadInputCase{
            "FolderThatMayNotBeRead",
            train({"--nproc", "3"}),
            1,
            {"@/data", "Permission denied"},
            data_and([](const Stage& stage) {
              fs::permissions(stage / "data", fs::perms::none);
            }),
            {},
            kBound},
        BadInputCase{
            "FileThatMayNotBeRead",
            kCheck,
            1,
            {"@/" + kLabels, "Permission denied"},
            data_and([](const Stage& stage) {
              fs::permissions(stage / kLabels, fs::perms::none);
            }),
            {},
            kBound},
        BadInputCase{
            "DanglingLink",
            kCheck,
            2,
            {"@/data", "digits, mnist"},
            [](const Stage& stage) { fs::create_symlink("gone", stage / "data"); }},
        BadInputCase{
            "UnknownName", {"train", "--data", "mnits"}, 2, {"mnits", "'mnist'"}},
        BadInputCase{
            "FolderWithoutImages",
            {"train", "--data", "/proc"},
            1,
            {"/proc", "train-images"}},
        BadInputCase{
            "MnistNotWhereTheVariableSays",
            {"train", "--data", "mnist"},
            1,
            {"/nonexistent/mnist", "--data"}},
        BadInputCase{
            "CacheCannotBeMade",
            {"train", "--data", "digits"},
            1,
            {"@/file", "another path"},
            [](const Stage& stage) { stage.write("file", "x"); },
            {{"XDG_CACHE_HOME", "@/file"}}},
        BadInputCase{
            "NoPlaceForACache",
            {"train", "--data", "digits"},
            2,
            {"XDG_CACHE_HOME", "HOME", "of your own"},
            {},
            {{"XDG_CACHE_HOME", ""}, {"HOME", ""}}},
        BadInputCase{
            "NotInTheOnlyPlaceForThreeRanks",
            {"train", "--data", "mnist", "--nproc", "3"},
            1,
            {"/nonexistent/mnist", "--data"},
            {},
            {{"XDG_CACHE_HOME", ""}, {"HOME", ""}}},
        BadInputCase{
            "NoPlaceForDigitsOfThreeRanks",
            {"train", "--data", "digits", "--nproc", "3"},
            2,
            {"XDG_CACHE_HOME", "HOME", "of your own"},
            {},
            {{"XDG_CACHE_HOME", ""}, {"HOME", ""}}},
        BadInputCase{
            "UnknownAction", {"data", "chek", "digits"}, 2, {"chek", "'check'"}},
        BadInputCase{
            "MakeOfAnotherSet",
            {"data", "make", "letters", "--out", "@/out"},
            2,
            {"'letters'", "digits"}},
        BadInputCase{"MakeWithoutAFolder", {"data", "make", "digits"}, 2, {"--out"}},
        BadInputCase{
            "MakeNothing",
            {"data", "make", "digits", "--out", "@/out", "--train", "0"},
            2,
            {"--train", "'0'", "1 to"}},
        BadInputCase{
            "MakeAbsurdlyMany",
            {"data", "make", "digits", "--out", "@/out", "--test",
             "1000000000000000000"},
            2,
            {"--test", "'1000000000000000000'", "to 10000000"}},
        BadInputCase{
            "MakeIntoAFile",
            kMake + std::vector<std::string>{"@/file"},
            1,
            {"@/file", "another path"},
            [](const Stage& stage) { stage.write("file", "x"); }},
        BadInputCase{
            "MakeOnAReadOnlyDisk",
            kMake + std::vector<std::string>{"@/disk/digits"},
            1,
            {"@/disk/digits", "Read-only"},
            {},
            {},
            {},
            "ro"},
        BadInputCase{
            "MakeOnAFullDisk",
            kMake + std::vector<std::string>{"@/disk/digits"},
            1,
            {"@/disk/digits", "t10k-images", "No space left"},
            {},
            {},
            {},
            "size=64k",
            [](const Stage& stage) {
              EXPECT_FALSE(fs::exists(stage / "disk.after/digits"));
            }},
        BadInputCase{
            "OutputOnAFullDisk",
            kCheck,
            1,
            {"output", "No space left"},
            &with_data,
            {},
            R"(exec "$@" > /dev/full)"}),
    name_of_case);

// Not bad at all: a model takes what it can take.
TEST(Data, ImagesNeedNotBeSquare) {
  const Stage stage;
  stage.data("data", 14, 56);
  for (const char* model : {"simplenet", "net"}) {
    const auto result =
        tandem_run({"train", "--data", stage / "data", "--model", model});
    EXPECT_TRUE(result.status.ok()) << result.errors;
  }
}

}  // namespace tandem::data_test
