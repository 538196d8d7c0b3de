// Checkpoints that `tandem eval` refuses. tests/checkpoint has further ones.

#include "tandem/train/evaluation.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::evaluation_test {

TEST(EvaluateCheckpoint, RefusesPathsWithoutACheckpoint) {
  const Scratch scratch;
  make_directories(scratch / "empty");
  replace_file(scratch / "text", "hello, this is no checkpoint");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"missing", "check the path"},
      {"empty",
       "no model.safetensors; name a directory such as RUN/checkpoints/step-N"},
      {"text", "safetensors"}};
  for (const auto& [name, says] : cases) {
    const std::string path = scratch / name;
    expect_error<DataError>([&] { return evaluate_checkpoint(path); }, {path, says});
  }
}

TEST(EvaluateCheckpoint, NamesTheModelNearestToAnUnknownModel) {
  const Scratch scratch;
  CheckpointContent content;
  content.state.model = {{"fc.weight", at::zeros({10, 784})}};
  content.description = {{"model", "simplenot"}, {"data", "digits"}};
  const auto path = save_checkpoint(scratch.path(), content, {});
  expect_error<ConfigError>(
      [&] { return evaluate_checkpoint(path); }, {"simplenot", "'simplenet'"});
}

}  // namespace tandem::evaluation_test
