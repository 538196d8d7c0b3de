#include "tandem/checkpoint/resume_settings.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::resume_settings_test {

using testing::HasSubstr;

TEST(ChangedSettings, AreListedWithBothValues) {
  RunConfig before;
  RunConfig now = before;
  EXPECT_EQ(changed_settings(to_toml(before), now), "");
  now.output.out = "/tmp/x";
  now.ranks.node_rank = 1;
  EXPECT_EQ(changed_settings(to_toml(before), now), "");
  now.optimizer.lr = 0.5;
  now.training.epochs = 5;
  now.ranks.nproc = 4;
  EXPECT_EQ(
      changed_settings(to_toml(before), now),
      "epochs 5 instead of 1, lr 0.5 instead of -1.0, nproc 4 instead of 1");
}

TEST(ChangedSettings, OlderFilesCompareOnlyTheirSettings) {
  RunConfig now;
  now.training.epochs = 5;
  now.training.seed = 7;
  EXPECT_EQ(
      changed_settings("format_version = 1\nepochs = 2\n", now),
      "epochs 5 instead of 2");
  EXPECT_NO_THROW(check_kept_settings("format_version = 1\nepochs = 2\n", now, "run"));
  // Older versions quoted numbers that may be words, and had other names.
  EXPECT_EQ(
      changed_settings(
          "\nnproc = \"1\"\naverage_every = \"4\"\nexecutor = \"onednn\"\n", now),
      "average_every \"epoch\" instead of 4, executor \"auto\" instead of "
      "\"compiled\"");
}

std::string refusal(const RunConfig& before, const RunConfig& now) {
  return error_of<ConfigError>(
      [&] { check_kept_settings(to_toml(before), now, "runs/a"); });
}

TEST(KeptSettings, ErrorsNameFlagBothValuesAndOrigin) {
  const RunConfig before;
  RunConfig now = before;
  now.training.seed = 7;
  expect_parts(
      refusal(before, now),
      {"seed is 7", "expected 0 as in 'runs/a'", "--seed", "--init"});
}

TEST(KeptSettings, AreModelDataOrderAndOptimizer) {
  const std::vector<std::pair<const char*, const char*>> changes = {
      {"model", "convnet"},  {"init", "weights"},
      {"dropout", "false"},  {"loss", "nll"},
      {"reduction", "sum"},  {"mean", "0.5"},
      {"std", "0.5"},        {"limit", "9"},
      {"share", "scatter"},  {"seed", "7"},
      {"optimizer", "adam"}, {"momentum", "0.9"},
      {"amsgrad", "true"},   {"loss_scale", "2"},
      {"sampler_seed", "7"}, {"epoch_mean", "dataset"},
      {"freeze", "conv*"},   {"init_skip", "fc*"},
      {"target", "price"},   {"label_smoothing", "0.1"},
      {"columns", "a"},      {"ignore_index", "3"},
      {"categories", "a"},   {"image_size", "16"},
      {"shape", "2,3"},      {"block_size", "16"},
      {"augment", "flip"},   {"test_fraction", "0.3"},
      {"ema_decay", "0.9"},  {"validation", "0.1"},
      {"reshuffle", "false"}};
  for (const auto& [name, value] : changes) {
    const RunConfig before;
    RunConfig now = before;
    const auto& field = find_field(name, "test");
    set_field(now, field, value, "test");
    EXPECT_THAT(refusal(before, now), HasSubstr("change " + field.flag() + " back"));
  }
}

TEST(KeptSettings, AModelFileMayHaveAnotherPath) {
  RunConfig before;
  const auto& field = find_field("model", "test");
  set_field(before, field, "/a/\"net\".pt2", "test");
  RunConfig now = before;
  EXPECT_EQ(changed_settings(to_toml(before), now), "");
  set_field(now, field, "/b/net.pt2", "test");
  EXPECT_EQ(refusal(before, now), "(no error)");
  EXPECT_EQ(
      changed_settings(to_toml(before), now),
      R"(model "/b/net.pt2" instead of "/a/\"net\".pt2")");
  set_field(now, field, "net", "test");
  EXPECT_THAT(refusal(before, now), HasSubstr("change --model back"));
  EXPECT_THAT(refusal(now, before), HasSubstr("change --model back"));
}

// Users may change ranks, epochs and the optimizer's numbers.
TEST(KeptSettings, OtherSettingsMayChange) {
  RunConfig before;
  before.optimizer.momentum = 0.9;
  before.exec.loss_scale = ExecOptions::kDynamicScale;
  before.model.init = "weights";
  before.model.init_skip = "fc*";
  RunConfig now = before;
  now.optimizer.momentum = 0.5;
  now.exec.loss_scale = 1024;
  now.model.init = "";
  now.model.init_skip = "";
  now.data.source = "/moved";
  now.training.epochs = 9;
  now.training.batch_size = 7;
  now.optimizer.lr = 3;
  now.optimizer.lr_factor = "fc*=2";
  now.optimizer.weight_decay_factor = "fc*=2";
  now.schedule.kind = ScheduleKind::cosine;
  now.strategy.kind = StrategyKind::hogwild;
  now.ranks.nproc = 4;
  now.data.uneven = Uneven::drop;
  EXPECT_EQ(refusal(before, now), "(no error)");
  now.optimizer.momentum = 0;
  EXPECT_THAT(refusal(before, now), HasSubstr("momentum is 0.0"));
}

TEST(EarlierRun, IsFoundByItsConfig) {
  const Scratch scratch;
  const auto run = scratch / "run";
  RunConfig config;
  config.output.out = run;
  const auto found = [&](const std::string& resume) {
    config.output.resume = resume;
    return config_of_earlier_run(config);
  };
  EXPECT_EQ(found("auto"), "");
  make_directories(run + "/checkpoints/tmp-12");
  replace_file(run + "/config.toml", to_toml(config));
  EXPECT_EQ(found("auto"), run + "/config.toml") << "a run without a checkpoint";
  RunConfig dry = config;
  dry.output.dry_run = true;
  replace_file(run + "/config.toml", to_toml(dry));
  EXPECT_EQ(found("auto"), "") << "a dry run";
  make_directories(run + "/checkpoints/step-00000004");
  EXPECT_EQ(found("auto"), run + "/config.toml");
  EXPECT_EQ(read_earlier_settings(config).text, read_file(run + "/config.toml"));
  EXPECT_EQ(found(""), "");
  EXPECT_EQ(found(run + "/checkpoints/step-00000004/"), run + "/config.toml");
  EXPECT_EQ(found(run), "");
  EXPECT_EQ(read_earlier_settings(config).text, "");
}

TEST(EarlierRun, HasTheSettingsOfItsCheckpointIfItsConfigLacksSettings) {
  const Scratch scratch;
  const auto run = scratch / "run";
  const auto file = run + "/config.toml";
  RunConfig config;
  config.data.limit = 1600;
  const std::string whole = to_toml(config);
  CheckpointContent content;
  content.state.model = {{"weight", at::zeros({3})}};
  content.config = whole;
  const auto path = save_checkpoint(run + "/checkpoints", content, {});
  config.output.out = run;
  for (const auto& resume : {std::string("auto"), path, path + "/"}) {
    config.output.resume = resume;
    remove_all(file);
    EXPECT_EQ(read_earlier_settings(config).text, whole);
    for (const size_t size : {size_t{0}, whole.size() / 2, whole.size() - 9}) {
      replace_file(file, whole.substr(0, size));
      const auto found = read_earlier_settings(config);
      EXPECT_EQ(found.text, whole) << size;
      EXPECT_TRUE(found.of_checkpoint);
      EXPECT_EQ(settings_of_run(found, config).data.limit, 1600);
    }
    // The settings of a later start, which may differ from those of the checkpoint.
    const std::string later = whole + "# later\n";
    replace_file(file, later);
    EXPECT_EQ(read_earlier_settings(config).text, later);
  }
  config.output.resume = "";
  EXPECT_EQ(read_earlier_settings(config).text, "");
}

TEST(EarlierRun, ProvidesAllSettingsExceptThoseOfOneStart) {
  RunConfig run;
  run.training.epochs = 2;
  run.data.limit = 3000;
  run.output.out = "old";
  run.ranks.node_rank = 1;
  run.ranks.master_addr = "10.0.0.9";
  RunConfig asked;
  asked.training.epochs = 14;
  asked.output.out = "new";
  asked.output.resume = "auto";
  const auto found = settings_of_run({to_toml(run), "config.toml"}, asked);
  EXPECT_EQ(found.training.epochs, 2);
  EXPECT_EQ(found.data.limit, 3000);
  EXPECT_EQ(found.output.out, "new");
  EXPECT_EQ(found.output.resume, "auto");
  EXPECT_EQ(found.ranks.node_rank, 0);
  EXPECT_EQ(found.ranks.master_addr, "127.0.0.1");
}

TEST(EarlierRun, ErrorsNameTheSourceOfTheSettings) {
  expect_error<ConfigError>(
      [] {
        settings_of_run({"seed = 1\nepochs = \"two\"\n", "config.toml of rank 0"}, {});
      },
      {"config.toml of rank 0:2: epochs"});
}

TEST(EarlierRun, OverridesARecipe) {
  const Scratch scratch;
  // The recipe does not contain limit.
  replace_file(scratch / "recipe.toml", "epochs = 14\nlr = 1.0\nout = \"x\"\n");
  RunConfig run;
  run.training.epochs = 2;
  run.data.limit = 3000;
  run.optimizer.lr = 0.5;
  RunConfig config = run;
  config.optimizer.lr = 0.1;
  EXPECT_EQ(
      kept_settings(scratch / "recipe.toml", run, config), "epochs 2 instead of 14");
}

}  // namespace tandem::resume_settings_test
