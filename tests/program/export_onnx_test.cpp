// Networks that a user trains, exports to ONNX, and runs with ONNX Runtime.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/graph/fixture_files.h"
#include "tests/parity/onnx_python.h"
#include "tests/program/program.h"

namespace tandem::export_onnx_test {

class OnnxExport : public testing::Test {
 protected:
  void SetUp() override {
    run_ok(
        {"data", "make", "digits", "--out", data_, "--train", "640", "--test", "500"});
  }

  // Trains a network on three ranks.
  void train(const std::string& model) const {
    run_ok({"train", "--data", data_, "--model", model, "--nproc", "3", "--out", run_});
  }

  CommandResult export_run() const {
    return tandem_run({"export", "--checkpoint", run_, "--out", file_});
  }

  // Returns the line "Average loss: 0.1234, Accuracy: 480/500".
  std::string evaluation() const {
    const auto result = run_ok({"eval", "--checkpoint", run_});
    const size_t begin = result.output.rfind("Average loss");
    return result.output.substr(begin, result.output.find(" (", begin) - begin);
  }

  // Writes the network of docs/guide/networks.md, with batch norm, dropout and a skip
  // connection.
  std::string network() const {
    replace_file(
        scratch_ / "network.pt2",
        unpacked(source_dir() + "/tests/docs/network.pt2.gz"));
    return scratch_ / "network.pt2";
  }

  const Scratch scratch_;
  const std::string data_ = scratch_ / "digits";
  const std::string run_ = scratch_ / "run";
  const std::string file_ = scratch_ / "net.onnx";
};

TEST_F(OnnxExport, OnnxRuntimeHasTheAccuracyOfEval) {
  TANDEM_NEEDS_ONNX_RUNTIME();
  for (const auto& model : {std::string("net"), network()}) {
    SCOPED_TRACE(model);
    remove_all(run_);
    train(model);
    checked(export_run());
    const auto theirs = checked(run_onnx_python(
        {source_dir() + "/tests/program/evaluate_onnx.py", file_, data_}));
    const auto ours = evaluation() + "\n";
    EXPECT_EQ(theirs.output, ours + ours);
  }
}

// With --normalize, evaluate_onnx.py gives the file pixels, and the accuracy is the
// same.
TEST_F(OnnxExport, FilesDescribeAndNormalizeTheirInput) {
  TANDEM_NEEDS_ONNX_RUNTIME();
  train("net");
  checked(tandem_run({"export", "--checkpoint", run_, "--out", file_, "--normalize"}));
  const auto theirs = checked(run_onnx_python(
      {source_dir() + "/tests/program/evaluate_onnx.py", file_, data_}));
  const auto ours = evaluation() + "\n";
  EXPECT_EQ(theirs.output, ours + ours);
  const std::string bytes = read_file(file_);
  for (const char* fact :
       {"class_names", "[\"0\",\"1\",\"2\",", "input_shape", "[1,28,28]", "unit", "255",
        "mean", "std", "raw"}) {
    EXPECT_THAT(bytes, testing::HasSubstr(fact));
  }
  expect_error_line(
      tandem_run(
          {"export", "--checkpoint", run_, "--out", scratch_ / "net.pt2",
           "--normalize"}),
      2, {"[export] --normalize is set, but --out is '"});
}

TEST_F(OnnxExport, OperatorsWithoutConversionLeaveTheOldFile) {
  std::string bytes = read_file(network());
  const std::string relu = "torch.ops.aten.relu.default";
  for (size_t at = bytes.find(relu); at != std::string::npos; at = bytes.find(relu)) {
    bytes.replace(at, relu.size(), "torch.ops.aten.erfc.default");
  }
  replace_file(scratch_ / "network.pt2", bytes);
  train(scratch_ / "network.pt2");
  replace_file(file_, std::string("old"));
  const auto exported = export_run();
  expect_error_line(
      exported, 2,
      {"[export] tandem has no conversion to ONNX for aten::erfc in relu (network.py:",
       " and 1 more"});
  EXPECT_EQ(read_file(file_), "old");
}

}  // namespace tandem::export_onnx_test
