// Checkpoints that commands refuse. tests/checkpoint damages every bit of a checkpoint.

#include "bad_input.h"

namespace tandem::checkpoint_test {

namespace fs = std::filesystem;

const std::string kModel = "checkpoint/model.safetensors";
const std::string kTraining = "checkpoint/training.safetensors";

std::vector<std::string> resume(const std::string& nproc) {
  return train({"--resume", "@/checkpoint", "--nproc", nproc});
}

Prepare cut(const std::string& name, size_t size) {
  return checkpoint_and([=](const Stage& stage) { stage.cut(name, size); });
}

void with_a_model_without_hash(const Stage& stage) {
  with_checkpoint(stage);
  stage.exchange(kModel, R"("sha256")", R"("shb256")");
}

// With the training state of an earlier checkpoint.
void with_an_older_training_state(const Stage& stage) {
  stage.data("data");
  stage.finished_run("run");
  fs::rename(stage / "run/checkpoints/step-00000002", stage / "checkpoint");
  fs::copy_file(
      stage / "run/checkpoints/step-00000001/training.safetensors", stage / kTraining,
      fs::copy_options::overwrite_existing);
  fs::remove_all(stage / "run");
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, BadInput,
    testing::Values(
        BadInputCase{
            "OfAnotherModelForThreeRanks",
            train({"--model", "net", "--resume", "@/checkpoint", "--nproc", "3"}),
            2,
            {"model is \"net\"", "expected \"simplenet\" as in '@/checkpoint'",
             "--model"},
            &with_checkpoint},
        BadInputCase{
            "OfOtherImages",
            train({"--data", "@/small", "--resume", "@/checkpoint"}),
            2,
            {"@/checkpoint", "training images", "--data"},
            checkpoint_and([](const Stage& stage) { stage.data("small", 8, 8); })},
        BadInputCase{
            "TornInTensorToEvaluate",
            {"eval", "--checkpoint", "@/checkpoint"},
            1,
            {"@/" + kModel, "do not fit tensor"},
            cut(kModel, 3000)},
        BadInputCase{
            "TornTrainingStateForFourRanks",
            resume("4"),
            1,
            {"@/" + kTraining, "header"},
            cut(kTraining, 20)},
        BadInputCase{
            "WithoutHashToExport",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.pt"},
            1,
            {"@/" + kModel, "hash is missing"},
            &with_a_model_without_hash},
        BadInputCase{
            "WithoutHashToBeginWith",
            train({"--init", "@/" + kModel}),
            1,
            {"@/" + kModel, "hash is missing", "without metadata"},
            &with_a_model_without_hash},
        BadInputCase{
            "TrainingStateOfAnotherStepForThreeRanks",
            resume("3"),
            1,
            {"@/checkpoint", "of two checkpoints"},
            &with_an_older_training_state},
        BadInputCase{
            "AnotherDirectoryForFourRanks",
            resume("4"),
            1,
            {"@/" + kModel, "No such file"},
            data_and([](const Stage& stage) {
              fs::create_directories(stage / "checkpoint/some/thing");
            })}),
    name_of_case);

// An export of 31 kB to a disk of 16 kB.
BadInputCase full_disk(const std::string& name, const std::string& file) {
  BadInputCase bad = {
      name,
      {"export", "--checkpoint", "@/checkpoint", "--out", "@/disk/" + file},
      1,
      {"@/disk/" + file, "No space left"},
      &with_checkpoint};
  bad.disk = "size=16k";
  bad.after = [](const Stage& stage) {
    EXPECT_TRUE(fs::is_empty(stage / "disk.after"));
  };
  return bad;
}

// Weights of other programs, and exports.
INSTANTIATE_TEST_SUITE_P(
    Weights, BadInput,
    testing::Values(
        BadInputCase{
            "InitMissing", train({"--init", "@/nosuch"}), 1, {"@/nosuch"}, &with_data},
        BadInputCase{"ExportWithoutOut", {"export", "--checkpoint", "x"}, 2, {"--out"}},
        BadInputCase{
            "ExportOfUnknownKind",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.xyz"},
            2,
            {"@/x.xyz", ".pt"}},
        BadInputCase{
            "ExportOfMissingAverages",
            {"export", "--checkpoint", "@/checkpoint", "--ema", "--out", "@/x.pt"},
            2,
            {"no moving averages", "--ema-decay", "leave out --ema"},
            &with_checkpoint},
        BadInputCase{
            "EvaluationOfMissingAverages",
            {"eval", "--checkpoint", "@/checkpoint", "--ema"},
            2,
            {"no moving averages", "--ema-decay", "leave out --ema"},
            &with_checkpoint},
        BadInputCase{
            "ExportToNowhere",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/no/such/x.pt"},
            1,
            {"@/no/such/x.pt"},
            &with_checkpoint},
        BadInputCase{
            "ExportOfWeightsWithANetwork",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.pt", "--model",
             "@/net.pt2"},
            2,
            {"@/net.pt2", "only weights", "leave out --model"},
            &with_checkpoint},
        BadInputCase{
            "ExportOfABuiltInModelWithANetwork",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.pt2", "--model",
             "@/net.pt2"},
            2,
            {"@/net.pt2", "simplenet", "leave out --model"},
            &with_checkpoint},
        full_disk("ExportOfWeightsToAFullDisk", "x.pt"),
        full_disk("ExportOfANetworkToAFullDisk", "x.pt2")),
    name_of_case);

std::vector<std::string> predict(
    const std::vector<std::string>& more, const std::string& out = "@/x.csv") {
  return with({"predict", "--checkpoint", "@/checkpoint", "--out", out}, more);
}

void expect_no_predictions(const Stage& stage) {
  for (const auto& entry : fs::recursive_directory_iterator(stage / ".")) {
    EXPECT_EQ(entry.path().string().find(".csv"), std::string::npos) << entry.path();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Predict, BadInput,
    testing::Values(
        BadInputCase{
            "OfAPartOfAFile",
            predict({"--split", "train", "--data", "@/data/t10k-images-idx3-ubyte"}),
            2,
            {"--split is train", "'@/data/t10k-images-idx3-ubyte'"},
            &with_checkpoint,
            {},
            {},
            {},
            &expect_no_predictions},
        BadInputCase{
            "ToNowhere",
            predict({}, "@/no/such.csv"),
            1,
            {"@/no/such.csv"},
            &with_checkpoint},
        BadInputCase{
            "OnAFullDisk",
            predict({}, "@/disk/x.csv"),
            1,
            {"@/disk/x.csv", "No space left"},
            &with_checkpoint,
            {},
            {},
            "size=4k",
            &expect_no_predictions},
        BadInputCase{
            "WithANetworkOfABuiltInModel",
            predict({"--model", "net.pt2"}),
            2,
            {"'net.pt2'", "is simplenet", "leave out --model"},
            &with_checkpoint,
            {},
            {},
            {},
            &expect_no_predictions},
        BadInputCase{
            "OfOtherImages",
            predict({"--data", "@/small"}),
            2,
            {"samples of @/small are images 1x8x8", "trained on images 1x28x28", "--data"},
            checkpoint_and([](const Stage& stage) { stage.data("small", 8, 8); }),
            {},
            {},
            {},
            &expect_no_predictions},
        BadInputCase{
            "OfAFolderWithoutLabels",
            predict({}),
            1,
            {"'@/data' has no t10k-labels-idx1-ubyte"},
            checkpoint_and([](const Stage& stage) {
              fs::remove(stage / "data/t10k-labels-idx1-ubyte");
            }),
            {},
            {},
            {},
            &expect_no_predictions},
        BadInputCase{
            "OfAFileThatIsNotImages",
            predict({"--data", "@/data/t10k-labels-idx1-ubyte"}),
            1,
            {"'@/data/t10k-labels-idx1-ubyte'", "dimension"},
            &with_checkpoint,
            {},
            {},
            {},
            &expect_no_predictions}),
    name_of_case);

}  // namespace tandem::checkpoint_test
