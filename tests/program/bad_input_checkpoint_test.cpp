// Checkpoints that are none.

#include "bad_input.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

const std::string kModel = "checkpoint/model.safetensors";
const std::string kTraining = "checkpoint/training.safetensors";
const std::vector<std::string> kEval = {"eval", "--checkpoint", "@/checkpoint"};

std::vector<std::string> resume(const std::vector<std::string>& more = {}) {
  auto arguments = train({"--resume", "@/checkpoint"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Prepare cut(const std::string& name, size_t size) {
  return checkpoint_and([=](const Stage& stage) { stage.cut(name, size); });
}

Prepare exchanged(
    const std::string& name, const std::string& from, const std::string& to) {
  return checkpoint_and([=](const Stage& stage) {
    stage.exchange(name, from, to);
    // Another program's file: nothing vouches for its header.
    stage.exchange(name, R"("sha256")", R"("nohash")");
  });
}

// A byte of the last tensor.
Prepare flipped(const std::string& name) {
  return checkpoint_and([=](const Stage& stage) {
    const size_t at = fs::file_size(stage / name) - 5;
    stage.patch(name, at, std::string(1, static_cast<char>(stage.read(name)[at] ^ 1)));
  });
}

Prepare folder_instead(const std::string& inside) {
  return data_and([=](const Stage& stage) {
    fs::create_directories(stage / ("checkpoint/" + inside));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, BadInput,
    testing::Values(
        BadInputCase{
            "OfAnotherModel",
            train({"--model", "net", "--resume", "@/checkpoint"}),
            2,
            {"model is \"net\"", "'@/checkpoint' has \"simplenet\"", "--model"},
            &with_checkpoint},
        BadInputCase{
            "OfAnotherModelForTwoRanks",
            train({"--model", "net", "--resume", "@/checkpoint", "--nproc", "2"}),
            2,
            {"model is \"net\"", "'@/checkpoint' has \"simplenet\"", "--model"},
            &with_checkpoint},
        BadInputCase{
            "OfOtherImages",
            train({"--data", "@/small", "--resume", "@/checkpoint"}),
            2,
            {"@/checkpoint", "training images", "--data"},
            checkpoint_and([](const Stage& stage) { stage.data("small", 8, 8); })},
        BadInputCase{
            "OfAnotherOptimizer",
            resume({"--optimizer", "adam"}),
            2,
            {"optimizer is \"adam\"", "'@/checkpoint' has", "--optimizer"},
            &with_checkpoint},
        BadInputCase{
            "NewerModel",
            resume(),
            1,
            {"has format 2", "reads 1", "update tandem"},
            exchanged(kModel, R"("format_version":"1")", R"("format_version":"2")")},
        BadInputCase{
            "NewerModelToEvaluate",
            kEval,
            1,
            {"has format 2", "update tandem"},
            exchanged(kModel, R"("format_version":"1")", R"("format_version":"2")")},
        BadInputCase{
            "NewerTrainingState",
            resume(),
            1,
            {"has format 2", "update tandem"},
            exchanged(kTraining, R"("format_version":"1")", R"("format_version":"2")")},
        BadInputCase{
            "TornInHeader",
            resume(),
            1,
            {"@/" + kModel, "ends inside its header"},
            cut(kModel, 100)},
        BadInputCase{
            "TornInTensor",
            resume(),
            1,
            {"@/" + kModel, "do not fit tensor"},
            cut(kModel, 3000)},
        BadInputCase{
            "TornInTensorToEvaluate",
            kEval,
            1,
            {"@/" + kModel, "do not fit tensor"},
            cut(kModel, 3000)},
        BadInputCase{
            "TornTrainingState",
            resume(),
            1,
            {"@/" + kTraining, "header"},
            cut(kTraining, 20)},
        BadInputCase{
            "TornTrainingStateForTwoRanks",
            resume({"--nproc", "2"}),
            1,
            {"@/" + kTraining, "header"},
            cut(kTraining, 20)},
        BadInputCase{
            "EmptyTrainingState",
            resume(),
            1,
            {"@/" + kTraining, "too short"},
            cut(kTraining, 0)},
        BadInputCase{
            "FlippedByte",
            resume(),
            1,
            {"@/" + kModel, "do not match its hash"},
            flipped(kModel)},
        BadInputCase{
            "FlippedByteToEvaluate",
            kEval,
            1,
            {"@/" + kModel, "hash"},
            flipped(kModel)},
        BadInputCase{
            "FlippedByteOfTrainingState",
            resume(),
            1,
            {"@/" + kTraining, "hash"},
            flipped(kTraining)},
        BadInputCase{
            "WrongShape",
            resume(),
            1,
            {"@/" + kModel, "do not fit", "'fc.weight'"},
            exchanged(kModel, "[10,784]", "[11,784]")},
        BadInputCase{
            "NegativeShape",
            kEval,
            1,
            {"@/" + kModel, "-1 where a size belongs"},
            exchanged(kModel, "[10,784]", "[-1,784]")},
        BadInputCase{
            "UnknownModelInside",
            kEval,
            2,
            {"simplenot", "'simplenet'"},
            exchanged(kModel, "simplenet", "simplenot")},
        BadInputCase{
            "WithoutTrainingState",
            resume(),
            1,
            {"@/" + kTraining, "No such file"},
            checkpoint_and([](const Stage& stage) { fs::remove(stage / kTraining); })},
        BadInputCase{
            "EmptyDirectory",
            resume(),
            1,
            {"@/" + kModel, "No such file"},
            folder_instead("")},
        BadInputCase{
            "EmptyDirectoryToEvaluate",
            kEval,
            1,
            {"@/checkpoint", "no model.safetensors", "step-N"},
            folder_instead("")},
        BadInputCase{
            "AnotherDirectoryForTwoRanks",
            resume({"--nproc", "2"}),
            1,
            {"@/" + kModel, "No such file"},
            folder_instead("some/thing")},
        BadInputCase{
            "FileForADirectory",
            resume(),
            1,
            {"@/checkpoint", "Not a directory"},
            data_and([](const Stage& stage) { stage.write("checkpoint", "hello"); })},
        BadInputCase{
            "TextToEvaluate",
            kEval,
            1,
            {"@/checkpoint", "safetensors"},
            data_and([](const Stage& stage) {
              stage.write("checkpoint", "hello, this is no checkpoint");
            })},
        BadInputCase{
            "Missing", resume(), 1, {"@/" + kModel, "check the path"}, &with_data},
        BadInputCase{"MissingToEvaluate", kEval, 1, {"@/checkpoint", "check the path"}},
        BadInputCase{"NotNamedToEvaluate", {"eval"}, 2, {"--checkpoint"}}),
    name_of_case);

// Weights from elsewhere, and on their way there.
INSTANTIATE_TEST_SUITE_P(
    Weights, BadInput,
    testing::Values(
        BadInputCase{
            "InitMissing", train({"--init", "@/nosuch"}), 1, {"@/nosuch"}, &with_data},
        BadInputCase{
            "InitIsAFolder", train({"--init", "@/data"}), 1, {"@/data"}, &with_data},
        BadInputCase{
            "InitIsText",
            train({"--init", "@/data/train-labels-idx1-ubyte"}),
            1,
            {"train-labels-idx1-ubyte"},
            &with_data},
        BadInputCase{
            "InitOfAnotherModel",
            train({"--model", "net", "--init", "@/checkpoint"}),
            2,
            {"@/checkpoint", "no tensor '"},
            &with_checkpoint},
        BadInputCase{"ExportWithoutOut", {"export", "--checkpoint", "x"}, 2, {"--out"}},
        BadInputCase{
            "ExportOfUnknownKind",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.onnx"},
            2,
            {"@/x.onnx", ".pt"},
            &with_checkpoint},
        BadInputCase{
            "ExportOfNothing",
            {"export", "--checkpoint", "@/nosuch", "--out", "@/x.pt"},
            1,
            {"@/nosuch"},
            &with_data},
        BadInputCase{
            "ExportToNowhere",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/no/such/x.pt"},
            1,
            {"@/no/such/x.pt"},
            &with_checkpoint}),
    name_of_case);

}  // namespace
}  // namespace tandem
