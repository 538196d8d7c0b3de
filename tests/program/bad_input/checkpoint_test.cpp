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
        bad_input(
            "OfAnotherModelForThreeRanks",
            train({"--model", "net", "--resume", "@/checkpoint", "--nproc", "3"}), 2,
            {"model is \"net\"", "expected \"simplenet\" as in '@/checkpoint'",
             "--model"},
            &with_checkpoint),
        bad_input(
            "OfOtherImages", train({"--data", "@/small", "--resume", "@/checkpoint"}),
            2, {"@/checkpoint", "training images", "--data"},
            checkpoint_and([](const Stage& stage) { stage.data("small", 8, 8); })),
        bad_input(
            "TornInTensorToEvaluate", {"eval", "--checkpoint", "@/checkpoint"}, 1,
            {"@/" + kModel, "do not fit tensor"}, cut(kModel, 3000)),
        bad_input(
            "TornTrainingStateForFourRanks", resume("4"), 1,
            {"@/" + kTraining, "header"}, cut(kTraining, 20)),
        bad_input(
            "WithoutHashToExport",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.pt"}, 1,
            {"@/" + kModel, "hash is missing"}, &with_a_model_without_hash),
        bad_input(
            "WithoutHashToBeginWith", train({"--init", "@/" + kModel}), 1,
            {"@/" + kModel, "hash is missing", "without metadata"},
            &with_a_model_without_hash),
        bad_input(
            "TrainingStateOfAnotherStepForThreeRanks", resume("3"), 1,
            {"@/checkpoint", "of two checkpoints"}, &with_an_older_training_state),
        bad_input(
            "AnotherDirectoryForFourRanks", resume("4"), 1,
            {"@/" + kModel, "No such file"}, data_and([](const Stage& stage) {
              fs::create_directories(stage / "checkpoint/some/thing");
            }))),
    name_of_case);

// An export of 31 kB to a disk of 16 kB.
BadInputCase full_disk(const std::string& name, const std::string& file) {
  return on_disk(
      "size=16k",
      and_then(
          [](const Stage& stage) { EXPECT_TRUE(fs::is_empty(stage / "disk.after")); },
          bad_input(
              name,
              {"export", "--checkpoint", "@/checkpoint", "--out", "@/disk/" + file}, 1,
              {"@/disk/" + file, "No space left"}, &with_checkpoint)));
}

// Weights of other programs, and exports.
INSTANTIATE_TEST_SUITE_P(
    Weights, BadInput,
    testing::Values(
        bad_input(
            "InitMissing", train({"--init", "@/nosuch"}), 1, {"@/nosuch"}, &with_data),
        bad_input("ExportWithoutOut", {"export", "--checkpoint", "x"}, 2, {"--out"}),
        bad_input(
            "ExportOfUnknownKind",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.xyz"}, 2,
            {"@/x.xyz", ".pt"}),
        bad_input(
            "ExportOfMissingAverages",
            {"export", "--checkpoint", "@/checkpoint", "--ema", "--out", "@/x.pt"}, 2,
            {"no moving averages", "--ema-decay", "leave out --ema"}, &with_checkpoint),
        bad_input(
            "EvaluationOfMissingAverages",
            {"eval", "--checkpoint", "@/checkpoint", "--ema"}, 2,
            {"no moving averages", "--ema-decay", "leave out --ema"}, &with_checkpoint),
        bad_input(
            "ExportToNowhere",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/no/such/x.pt"}, 1,
            {"@/no/such/x.pt"}, &with_checkpoint),
        bad_input(
            "ExportOfWeightsWithANetwork",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.pt", "--model",
             "@/net.pt2"},
            2, {"@/net.pt2", "only weights", "leave out --model"}, &with_checkpoint),
        bad_input(
            "ExportOfABuiltInModelWithANetwork",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.pt2", "--model",
             "@/net.pt2"},
            2, {"@/net.pt2", "simplenet", "leave out --model"}, &with_checkpoint),
        full_disk("ExportOfWeightsToAFullDisk", "x.pt"),
        full_disk("ExportOfANetworkToAFullDisk", "x.pt2")),
    name_of_case);

// A run of `tandem predict`, which must leave no predictions.
BadInputCase predict(
    const std::string& name, const Arguments& more, int code,
    const std::vector<std::string>& says, const Prepare& prepare = &with_checkpoint,
    const std::string& out = "@/x.csv") {
  const auto expect_no_predictions = [](const Stage& stage) {
    for (const auto& entry : fs::recursive_directory_iterator(stage / ".")) {
      EXPECT_EQ(entry.path().string().find(".csv"), std::string::npos) << entry.path();
    }
  };
  return and_then(
      expect_no_predictions,
      bad_input(
          name, with({"predict", "--checkpoint", "@/checkpoint", "--out", out}, more),
          code, says, prepare));
}

INSTANTIATE_TEST_SUITE_P(
    Predict, BadInput,
    testing::Values(
        predict(
            "OfAPartOfAFile",
            {"--split", "train", "--data", "@/data/t10k-images-idx3-ubyte"}, 2,
            {"--split is train", "'@/data/t10k-images-idx3-ubyte'"}),
        predict(
            "ToNowhere", {}, 1, {"@/no/such.csv"}, &with_checkpoint, "@/no/such.csv"),
        on_disk(
            "size=4k", predict(
                           "OnAFullDisk", {}, 1, {"@/disk/x.csv", "No space left"},
                           &with_checkpoint, "@/disk/x.csv")),
        predict(
            "WithANetworkOfABuiltInModel", {"--model", "net.pt2"}, 2,
            {"'net.pt2'", "is simplenet", "leave out --model"}),
        predict(
            "OfOtherImages", {"--data", "@/small"}, 2,
            {"samples of @/small are images 1x8x8", "trained on images 1x28x28",
             "--data"},
            checkpoint_and([](const Stage& stage) { stage.data("small", 8, 8); })),
        predict(
            "OfAFolderWithoutLabels", {}, 1, {"'@/data' has no t10k-labels-idx1-ubyte"},
            checkpoint_and([](const Stage& stage) {
              fs::remove(stage / "data/t10k-labels-idx1-ubyte");
            })),
        predict(
            "OfAFileThatIsNotImages", {"--data", "@/data/t10k-labels-idx1-ubyte"}, 1,
            {"'@/data/t10k-labels-idx1-ubyte'", "dimension"})),
    name_of_case);

}  // namespace tandem::checkpoint_test
