// Checkpoints that are none.

#include <cstring>
#include <nlohmann/json.hpp>

#include "bad_input.h"
#include "tandem/base/sha256.h"

namespace tandem::checkpoint_test {

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

// Gives a file the hash of what it says now (formats/safetensors.h), as another build
// of this program would have written it. What JSON's objects hold comes sorted.
void rehash(const Stage& stage, const std::string& name) {
  const std::string bytes = stage.read(name);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  auto header = nlohmann::json::parse(bytes.substr(sizeof(length), length));
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    hash.update(text.data(), text.size() + 1);
  };
  const auto metadata = header.at("__metadata__");
  header.erase("__metadata__");
  for (const auto& [key, value] : metadata.items()) {
    if (key != "sha256") {
      add(key);
      add(value.get<std::string>());
    }
  }
  for (const auto& [tensor, entry] : header.items()) {
    add(tensor);
    add(entry.at("dtype").get<std::string>());
    for (const int64_t dim : entry.at("shape")) {
      add(std::to_string(dim));
    }
    const auto& range = entry.at("data_offsets");
    const size_t begin = range.at(0);
    const size_t end = range.at(1);
    hash.update(bytes.data() + sizeof(length) + length + begin, end - begin);
  }
  stage.exchange(name, metadata.at("sha256").get<std::string>(), hash.hex_digest());
}

Prepare exchanged(
    const std::string& name, const std::string& from, const std::string& to) {
  return checkpoint_and([=](const Stage& stage) { stage.exchange(name, from, to); });
}

// As Python's save_file(tensors, path) writes it: no metadata of ours.
void make_weights_only(const Stage& stage) {
  for (const char* key : {"sha256", "checkpoint_id", "format_version"}) {
    auto other = std::string(key);
    other[0] = '_';
    stage.exchange(kModel, key, other);
  }
}

Prepare exchanged_with_hash(
    const std::string& name, const std::string& from, const std::string& to) {
  return checkpoint_and([=](const Stage& stage) {
    stage.exchange(name, from, to);
    rehash(stage, name);
  });
}

// With files of the checkpoint before it.
Prepare mixed(const std::string& name) {
  return data_and([=](const Stage& stage) {
    stage.finished_run("run");
    fs::rename(stage / "run/checkpoints/step-00000002", stage / "checkpoint");
    fs::copy_file(
        stage / ("run/checkpoints/step-00000001/" + fs::path(name).filename().string()),
        stage / name, fs::copy_options::overwrite_existing);
    fs::remove_all(stage / "run");
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
            "OfAnotherModelForThreeRanks",
            train({"--model", "net", "--resume", "@/checkpoint", "--nproc", "3"}),
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
            {"has format 3", "reads 2", "update tandem"},
            exchanged_with_hash(
                kModel, R"("format_version":"2")", R"("format_version":"3")")},
        BadInputCase{
            "NewerModelToEvaluate",
            kEval,
            1,
            {"has format 3", "update tandem"},
            exchanged_with_hash(
                kModel, R"("format_version":"2")", R"("format_version":"3")")},
        BadInputCase{
            "NewerTrainingState",
            resume(),
            1,
            {"has format 3", "update tandem"},
            exchanged_with_hash(
                kTraining, R"("format_version":"2")", R"("format_version":"3")")},
        BadInputCase{
            "OlderModel",
            resume(),
            1,
            {"has format 1", "reads 2", "start from its weights with --init"},
            exchanged_with_hash(
                kModel, R"("format_version":"2")", R"("format_version":"1")")},
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
            "TornTrainingStateForFourRanks",
            resume({"--nproc", "4"}),
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
            "WithoutHash",
            resume(),
            1,
            {"@/" + kModel, "hash is missing", "--init"},
            exchanged(kModel, R"("sha256")", R"("shb256")")},
        BadInputCase{
            "WithoutHashToEvaluate",
            kEval,
            1,
            {"@/" + kModel, "hash is missing"},
            exchanged(kModel, R"("sha256")", R"("shb256")")},
        BadInputCase{
            "WithoutHashToExport",
            {"export", "--checkpoint", "@/checkpoint", "--out", "@/x.pt"},
            1,
            {"@/" + kModel, "hash is missing"},
            exchanged(kModel, R"("sha256")", R"("shb256")")},
        BadInputCase{
            "WeightsToEvaluate",
            {"eval", "--checkpoint", "@/" + kModel},
            1,
            {"@/" + kModel, "holds weights only", "--init"},
            checkpoint_and(&make_weights_only)},
        BadInputCase{
            "WeightsToExport",
            {"export", "--checkpoint", "@/" + kModel, "--out", "@/x.pt"},
            1,
            {"@/" + kModel, "holds weights only", "--init"},
            checkpoint_and(&make_weights_only)},
        BadInputCase{
            "WithoutHashToBeginWith",
            train({"--init", "@/" + kModel}),
            1,
            {"@/" + kModel, "hash is missing", "without metadata"},
            exchanged(kModel, R"("sha256")", R"("shb256")")},
        BadInputCase{
            "ModelOfAnotherStep",
            resume(),
            1,
            {"@/checkpoint", "of two checkpoints"},
            mixed(kModel)},
        BadInputCase{
            "TrainingStateOfAnotherStepForThreeRanks",
            resume({"--nproc", "3"}),
            1,
            {"@/checkpoint", "of two checkpoints"},
            mixed(kTraining)},
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
            exchanged_with_hash(kModel, "simplenet", "simplenot")},
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
            "AnotherDirectoryForFourRanks",
            resume({"--nproc", "4"}),
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

}  // namespace tandem::checkpoint_test
