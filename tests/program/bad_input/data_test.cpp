// Broken data sets: `tandem data` and `tandem train` on them. tests/data has the table.

#include "bad_input.h"

namespace tandem::data_test {

namespace fs = std::filesystem;

const std::string kImages = "data/train-images-idx3-ubyte";
const std::string kLabels = "data/train-labels-idx1-ubyte";

const Arguments kCheck = {"data", "info", "@/data"};
const Arguments kMake = {"data", "make",   "digits", "--train",
                         "64",   "--test", "64",     "--out"};

void with_a_cut_file(const Stage& stage) {
  stage.data("data");
  stage.cut(kImages, 1000);
}

INSTANTIATE_TEST_SUITE_P(
    Idx, BadInput,
    testing::Values(
        bad_input(
            "Truncated", kCheck, 1,
            {"@/" + kImages, "984 of the 50176", "fetch it again"}, &with_a_cut_file),
        bad_input(
            "TruncatedForThreeRanks", train({"--nproc", "3", "--out", "@/out"}), 1,
            {"@/" + kImages, "984 of the 50176"}, &with_a_cut_file),
        bad_input(
            "ImagesTooSmallForFourRanks", train({"--model", "net", "--nproc", "4"}), 2,
            {"1x784", "too small", "--model"},
            [](const Stage& stage) { stage.data("data", 1, 784); })),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    DataSet, BadInput,
    testing::Values(
        bad_input(
            "MissingFolderForFourRanks", train({"--nproc", "4"}), 2,
            {"@/data", "digits, mnist"}),
        in_shell(
            kBound,
            bad_input(
                "FolderThatMayNotBeRead", train({"--nproc", "3"}), 1,
                {"@/data", "Permission denied"}, data_and([](const Stage& stage) {
                  fs::permissions(stage / "data", fs::perms::none);
                }))),
        in_shell(
            kBound,
            bad_input(
                "FileThatMayNotBeRead", kCheck, 1,
                {"@/" + kLabels, "Permission denied"}, data_and([](const Stage& stage) {
                  fs::permissions(stage / kLabels, fs::perms::none);
                }))),
        bad_input(
            "MnistNotWhereTheVariableSays", {"train", "--data", "mnist"}, 1,
            {"/nonexistent/mnist", "--data"}),
        bad_input(
            "UnknownAction", {"data", "chek", "digits"}, 2,
            {"chek", "fetch, make, info"}),
        bad_input(
            "MakeOfAnotherSet", {"data", "make", "letters", "--out", "@/out"}, 2,
            {"'letters'", "digits"}),
        bad_input("MakeWithoutAFolder", {"data", "make", "digits"}, 2, {"--out"}),
        bad_input(
            "MakeNothing", {"data", "make", "digits", "--out", "@/out", "--train", "0"},
            2, {"--train", "'0'", "1 to"}),
        bad_input(
            "MakeAbsurdlyMany",
            {"data", "make", "digits", "--out", "@/out", "--test",
             "1000000000000000000"},
            2, {"--test", "'1000000000000000000'", "to 10000000"}),
        bad_input(
            "MakeIntoAFile", with(kMake, {"@/file"}), 1, {"@/file", "another path"},
            [](const Stage& stage) { stage.write("file", "x"); }),
        on_disk(
            "ro", bad_input(
                      "MakeOnAReadOnlyDisk", with(kMake, {"@/disk/digits"}), 1,
                      {"@/disk/digits", "Read-only"})),
        on_disk(
            "size=64k",
            and_then(
                [](const Stage& stage) {
                  EXPECT_FALSE(fs::exists(stage / "disk.after/digits"));
                },
                bad_input(
                    "MakeOnAFullDisk", with(kMake, {"@/disk/digits"}), 1,
                    {"@/disk/digits", "t10k-images", "No space left"}, {}))),
        in_shell(
            R"(exec "$@" > /dev/full)", bad_input(
                                            "OutputOnAFullDisk", kCheck, 1,
                                            {"output", "No space left"}, &with_data))),
    name_of_case);

// This is valid: a model accepts images of any shape that its layers accept.
TEST(Data, ImagesNeedNotBeSquare) {
  const Stage stage;
  stage.data("data", 14, 56);
  for (const char* model : {"simplenet", "net"}) {
    run_ok({"train", "--data", stage / "data", "--model", model});
  }
}

}  // namespace tandem::data_test
