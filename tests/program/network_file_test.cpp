// Networks of the user in files: from Python to trained weights and back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "tests/graph/fixture_files.h"
#include "tests/parity/python.h"

namespace tandem::network_file_test {

using testing::HasSubstr;

constexpr size_t kPixels = 3 * 32 * 32;

// Returns records in CIFAR-10's format. The labels determine the brightness.
std::string records(int count) {
  std::string bytes;
  uint32_t state = 7;
  for (int i = 0; i < count; ++i) {
    const int label = i * 7 % 10;
    bytes.push_back(static_cast<char>(label));
    for (size_t pixel = 0; pixel < kPixels; ++pixel) {
      state = state * 1664525 + 1013904223;
      bytes.push_back(static_cast<char>(label * 20 + (state >> 26)));
    }
  }
  return bytes;
}

// Returns the number of correct test samples that `tandem eval` prints.
std::string correct_in(const std::string& checkpoint, const std::string& samples) {
  const auto text = run_ok({"eval", "--checkpoint", checkpoint, "--trust"}).output;
  const std::string key = "Accuracy: ";
  const size_t begin = text.find(key) + key.size();
  const size_t end = text.find("/" + samples, begin);
  EXPECT_NE(end, std::string::npos) << text;
  return text.substr(begin, end - begin);
}

// Exports the weights. Expects Python to load them with strict=True, and to have
// this number of correct samples.
void expect_correct_in_python(
    const std::string& network, const std::string& checkpoint, const std::string& data,
    const std::string& correct) {
  const std::string weights = checkpoint + ".pt";
  run_ok({"export", "--checkpoint", checkpoint, "--out", weights});
  const auto python = checked(run_python(
      {source_dir() + "/tests/graph/check_state.py", network, weights, data}));
  EXPECT_THAT(python.output, HasSubstr("\"correct\": " + correct + ","));
}

TEST(NetworkFile, ExportedNetworkHasTheSameAccuracyInPython) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const Scratch scratch;
  const std::string data = scratch / "cifar";
  make_directories(data);
  for (int part = 1; part <= 5; ++part) {
    replace_file(data + "/data_batch_" + std::to_string(part) + ".bin", records(60));
  }
  replace_file(data + "/test_batch.bin", records(200));
  const auto network = unpack_fixture(scratch, "resnet18-2.15.0.pt2");
  const std::string run = scratch / "run";
  run_ok(
      {"train", "--model", network, "--data", data, "--nproc", "3", "--batch-size", "5",
       "--optimizer", "adam", "--lr", "0.003", "--epochs", "6", "--out", run});
  const auto correct = correct_in(run, "200");
  EXPECT_GT(std::stoi(correct), 30);
  expect_correct_in_python("resnet18", run, data, correct);
}

class ScriptFile : public testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_PYTHON_TORCH();
    checked(run_python(
        {"-c",
         "import sys, torch; sys.path.append(sys.argv[1]); import networks; "
         "torch.jit.script(networks.Net()).save(sys.argv[2])",
         source_dir() + "/tests/graph", network_}));
    run_ok(
        {"data", "make", "digits", "--out", data_, "--train", "640", "--test", "500"});
  }

  Arguments train_with(const Arguments& more) {
    return with({"train", "--model", network_, "--data", data_, "--nproc", "3"}, more);
  }

  Scratch scratch_;
  std::string network_ = scratch_ / "net.pt";
  std::string data_ = scratch_ / "digits";
};

TEST_F(ScriptFile, TrainsResumesAndHasTheSameAccuracyInPython) {
  const std::string run = scratch_ / "run";
  const Arguments loss = {"--loss", "nll", "--out", run};
  EXPECT_THAT(run_ok(train_with(loss)).output, HasSubstr("executor eager"));
  // The run has its own copy.
  remove_all(network_);
  for (const Arguments& command : std::vector<Arguments>{
           {"train", "--resume", "auto", "--out", run, "--epochs", "3"},
           {"eval", "--checkpoint", run},
           {"predict", "--checkpoint", run, "--out", scratch_ / "predictions.csv"},
           {"export", "--checkpoint", run, "--out", scratch_ / "net.onnx"}}) {
    expect_error_line(tandem_run(command), 2, {"is TorchScript, which runs code"});
  }
  run_ok({"train", "--resume", "auto", "--out", run, "--epochs", "3", "--trust"});
  const auto correct = correct_in(run, "500");
  EXPECT_GT(std::stoi(correct), 150);
  expect_correct_in_python("net", run, data_, correct);
}

TEST_F(ScriptFile, ATornFileEndsTheRunWithOneLine) {
  const auto bytes = read_file(network_);
  replace_file(network_, bytes.substr(0, bytes.size() / 2));
  const auto result = tandem_run(train_with({}));
  expect_error_line(result, 1, {network_});
}

}  // namespace tandem::network_file_test
