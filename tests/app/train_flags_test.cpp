// Arguments of `tandem train`: names of flags, and errors before anything starts.

#include "app/train_flags.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/app/refusals.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::app::train_flags_test {

void expect_refused(const std::vector<Refusal>& refusals) {
  app::expect_refused(refusals, [](const Arguments& arguments) {
    return parse_train_arguments(arguments);
  });
}

// tests/config/fields_test.cpp covers the other choices.
TEST(TrainFlags, RefuseUnknownNamesWithTheNearest) {
  expect_refused({
      {{"--modle", "net"}, {"--modle", "'--model'"}},
      {{"--model", "nett"}, {"nett", "'net'"}},
      {{"--strategy", "data_paralel"}, {"data_paralel", "'data_parallel'"}},
      {{"--optimizer", "sdg"}, {"sdg", "'sgd'"}},
      {{"--device", "cpuu"}, {"cpuu", "'cpu'"}},
      {{"--device", "cuda:"}, {"cuda:", "cuda:0"}},
      {{"--device", "cuda:-1"}, {"cuda:-1", "cuda:0"}},
      {{"--device", "cpu:0"}, {"cpu:0", "'cpu'"}},
      {{"--backend", "nccl", "--device", "cpu"},
       {"backend is nccl", "device is cpu", "--backend auto"}},
      {{"--model", "simplenet", "--loss", "nll"},
       {"loss is nll", "simplenet", "--loss cross_entropy"}},
      {{"--average-every", "epch"}, {"'epch'", "epoch or end"}},
      {{"--loss-scale", "dynmic"}, {"dynmic", "dynamic"}},
      {{"--model", "custom"}, {"examples/custom_model", "--model"}},
      {{"--num-machine", "1"}, {"--num-machine", "'--num-machines'"}},
      {{"--micro-batches", "2", "--accumulate", "2"},
       {"--micro-batches and --accumulate", "leave one out"}},
      {{"-nr=0", "--machine-id=0"}, {"-nr and --machine-id", "leave one out"}},
      {{"-g", "1", "-g", "2"}, {"more than once"}},
      {{"--rank-type", "thred"}, {"thred", "'thread'"}},
      {{"--set", "bach_size=3"}, {"bach_size", "'batch_size'"}},
      {{"--set", "batch_size"}, {"batch_size", "key=value"}},
      {{"--lr", "1", "--lr", "2"}, {"--lr", "more than once"}},
      {{"--lr"}, {"--lr", "has no value"}},
      {{"a.toml", "b.toml"}, {"b.toml", "--help"}},
  });
}

TEST(TrainFlags, NameTheSettingForFlagsOfOtherTools) {
  expect_refused({
      {{"--num-workers", "4"}, {"--num-workers", "no workers"}},
      {{"--set", "num_workers=4"}, {"no workers"}},
      {{"--set", "learning_rate=1"}, {"use lr"}},
      {{"--amp"}, {"precision = \"bf16\""}},
      {{"--model", "resnet18"},
       {"cannot be 'resnet18'", "choose one of net", "NET.pt2",
        "examples/custom_model"}},
      {{"--set", "foo=bar"}, {"unknown key 'foo'; see tandem train --help"}},
  });
}

TEST(TrainFlags, RefuseNetworkFilesThatAreMissing) {
  expect_refused({
      {{"--model", "/nosuch/net.pt2"},
       {"[model] model is '/nosuch/net.pt2'", "check the path of --model"},
       1},
      {{"--set", "model=nosuch.pt"}, {"model is 'nosuch.pt'"}, 1},
  });
}

TEST(TrainFlags, RunScriptsOnlyIfTheyAreNamedOrTrusted) {
  const Scratch scratch;
  const auto script = scratch / "evil.pt";
  replace_file(script, "code");
  replace_file(scratch / "base.toml", "model = \"" + script + "\"\n");
  replace_file(scratch / "recipe.toml", "base = \"base.toml\"\nepochs = 1\n");
  const auto recipe = scratch / "recipe.toml";
  expect_refused({
      {{recipe}, {"[model] '" + script + "' is TorchScript", "--trust"}},
      {{recipe, "--set", "epochs=2", "--dry-run"}, {"is TorchScript"}},
  });
  const std::vector<Arguments> accepted = {
      {recipe, "--trust"},
      {recipe, "--model", script},
      {recipe, "--set", "model=" + script},
      {"--model", script}};
  for (const auto& arguments : accepted) {
    EXPECT_EQ(parse_train_arguments(arguments).model.file, script);
  }
}

TEST(TrainFlags, RefuseValuesOutOfRange) {
  expect_refused({
      {{"--name", "\xff\xfe"}, {"name", "not UTF-8", "--name"}},
      {{"--checkpoint-minutes", "-1"}, {"checkpoint_minutes is -1", "0 to"}},
      {{"--batch-size", "0"}, {"batch_size is 0", "1 to"}},
      {{"--batch-size", "-1"}, {"batch_size is -1", "1 to"}},
      {{"--batch-size", "1000000000000000000"},
       {"batch_size is 1000000000000000000", "to 16777216", "--batch-size"}},
      {{"--batch-size", "99999999999999999999"},
       {"--batch-size", "99999999999999999999"}},
      {{"--eval-batch-size", "0"}, {"eval_batch_size is 0"}},
      {{"--eval-every", "0"}, {"eval_every is 0"}},
      {{"--epochs", "-1"}, {"epochs is -1", "0 to"}},
      {{"--epochs", "x"}, {"--epochs", "'x'", "whole number"}},
      {{"--epochs", "1.5"}, {"'1.5'", "whole number"}},
      {{"--limit", "-5"}, {"limit is -5", "0 to"}},
      {{"--nproc", "0"}, {"nproc is '0'", "1 to 4096"}},
      {{"--nproc", "-1"}, {"nproc is -1", "1 to 4096"}},
      {{"--nproc", "100000"}, {"100000", "1 to 4096"}},
      {{"-g0"}, {"nproc is '0'", "1 to 4096"}},
      {{"-n", "two"}, {"--nnodes", "'two'", "whole number"}},
      {{"--patience", "-1"}, {"patience is -1", "--patience"}},
      {{"--min-delta", "-1"}, {"min_delta is -1", "--min-delta"}},
      {{"--stages", "-1"}, {"stages is -1", "--stages"}},
      {{"--replicas", "5000"}, {"replicas is 5000", "to 4096"}},
      {{"--max-staleness", "-1"}, {"max_staleness is -1", "--max-staleness"}},
      {{"--average-every", "0"}, {"average_every", "'0'"}},
      {{"--loss-scale", "-2"}, {"loss_scale is -2", "--loss-scale"}},
      {{"--bucket-bytes", "0"}, {"bucket_bytes is 0"}},
      {{"--accumulate", "0"}, {"accumulate is 0", "1 to"}},
      {{"--accumulate", "1000000000000"}, {"accumulate is 1000000000000", "to 16384"}},
      {{"--lr", "nan"}, {"--lr", "'nan'", "a number"}},
      {{"--lr", "inf"}, {"--lr", "'inf'", "a number"}},
      {{"--lr", "-2"}, {"lr is -2", "default", "--lr"}},
      {{"--lr", "fast"}, {"--lr", "'fast'", "a number"}},
      {{"--optimizer", "sgd", "--momentum", "1.5"},
       {"momentum is 1.5", "0 to 1", "--momentum"}},
      {{"--momentum", "0.9"}, {"adadelta", "momentum"}},
      {{"--gamma", "-1"}, {"gamma is -1", "--gamma"}},
      {{"--step-size", "0"}, {"step_size is 0", "1 to"}},
      {{"--warmup-steps", "-1"}, {"warmup_steps is -1"}},
      {{"--schedule", "warmup_cosine", "--start-factor", "2"},
       {"start_factor is 2", "0 to 1"}},
      {{"--label-smoothing", "1.5"}, {"label_smoothing is 1.5", "0 to 1"}},
      {{"--ignore-index", "3.5"}, {"--ignore-index", "'3.5'", "whole number"}},
      {{"--ema-decay", "-0.5"}, {"ema_decay is -0.5", "0 to 1"}},
      {{"--std", "0"}, {"std is 0", "--std"}},
      {{"--mean", "0.5"}, {"mean is 0.5", "std is default", "add --std", "--std auto"}},
      {{"--std", "0.5"}, {"std is 0.5", "mean is default", "--mean auto"}},
      {{"--nnodes", "3:"}, {"--nnodes is '3:'", "a number of hosts, or MIN:MAX"}},
      {{"--nnodes=:3"}, {"--nnodes is ':3'", "MIN:MAX"}},
      {{"--nnodes", "3:2", "--master-port", "29500"}, {"nnodes is 3:2", "MIN:MAX"}},
      {{"--clip-norm", "-1"}, {"clip_norm is -1"}},
      {{"--timeout-seconds", "0"}, {"timeout_seconds is 0"}},
      {{"--timeout-seconds", "1e300"}, {"timeout_seconds"}},
      {{"--nproc", "3", "--master-port", "99999"}, {"to 65535"}},
      {{"--nnodes", "1000000000"}, {"nnodes is", "to 65536"}},
      {{"--node-rank", "3"}, {"node_rank is 3", "--nnodes"}},
  });
}

TEST(TrainFlags, RefuseLinesWithUnknownValues) {
  expect_refused({
      {{"--start-line", "{shar}"}, {"start_line is '{shar}'", "share"}},
      {{"--log-line", "{loss"}, {"log_line is '{loss'", "loss"}},
      {{"--log-line", "{loss:d}"}, {"log_line", "'{loss:d}'"}},
      {{"--epoch-line", "{}"}, {"epoch_line is '{}'", "a name"}},
      {{"--converged-line", "rank }"}, {"converged_line is 'rank }'"}},
      {{"--test-line", "{0}"}, {"test_line is '{0}'", "accuracy"}},
      {{"--end-line", "{secs}"}, {"end_line is '{secs}'", "seconds"}},
  });
}

TEST(TrainFlags, RefuseSettingsThatContradictEachOther) {
  expect_refused({
      {{"--rank-type", "thread", "--nnodes", "2"}, {"2 hosts", "--rank-type process"}},
      {{"--strategy", "hogwild", "--nnodes", "2", "--master-port", "4512"},
       {"share memory", "2 hosts", "--nnodes 1"}},
      {{"--strategy", "averaging", "--comm-hook", "fp16"},
       {"averaging", "leave out --comm-hook"}},
      {{"--strategy", "averaging", "--loss-scale", "dynamic"},
       {"--loss-scale", "averaging"}},
      {{"--strategy", "averaging", "--ema-decay", "0.9"},
       {"ema_decay is 0.9", "averaging", "leave out --ema-decay"}},
      {{"--model", "net", "--label-smoothing", "0.1"},
       {"label_smoothing is 0.1", "the loss is nll", "use --loss cross_entropy"}},
      {{"--model", "simplenet", "--loss", "softmax_cross_entropy", "--label-smoothing",
        "0.1"},
       {"the loss is softmax_cross_entropy", "leave out --label-smoothing"}},
      {{"--share", "scatter", "--ignore-index", "3"},
       {"ignore_index is 3", "share is scatter", "--share sampler"}},
      {{"--rank-type", "thread", "--backend", "gloo"},
       {"gloo", "thread", "--backend auto"}},
      {{"--backend", "thread", "--nproc", "4"},
       {"thread", "process", "--backend auto"}},
      {{"--backend", "mpi", "--rank-type", "thread", "--nproc", "4"},
       {"does not work with rank_type thread"}},
      {{"--launcher", "mpirun", "--rank-type", "thread"}, {"--launcher tandem"}},
      {{"--backend", "shm", "--nnodes", "2", "--master-port", "29411"},
       {"shm", "one host", "--backend auto"}},
      {{"--strategy", "averaging", "--divide-batch", "--nproc", "3"},
       {"--divide-batch", "averaging", "data_parallel or sequential"}},
      {{"--share", "scatter", "--divide-batch"},
       {"share is scatter", "--share sampler"}},
      {{"--uneven", "drop", "--divide-batch"},
       {"uneven is drop", "divide_batch", "leave out"}},
      {{"--resume", "auto"}, {"--out"}},
      {{"--keep-best"}, {"keep_best is true", "out is empty", "--no-keep-best"}},
      {{"--tensorboard"},
       {"tensorboard is true", "out is empty", "--out", "--no-tensorboard"}},
      {{"--patience", "2", "--epochs", "5", "--eval-every", "5"},
       {"patience", "eval_every is 5", "5 epochs", "lower --eval-every"}},
      {{"--cut", "fc1"},
       {"cut is fc1, which is for strategy pipeline", "not data_parallel", "--cut"}},
      {{"--stages", "2", "--nproc", "4"},
       {"data_parallel", "--strategy pipeline", "--stages"}},
  });
}

TEST(TrainFlags, AcceptOtherWordsForBooleans) {
  for (const std::string word : {"true", "True", "1", "on", "yes"}) {
    EXPECT_TRUE(parse_train_arguments({"--dry-run=" + word}).output.dry_run) << word;
  }
  for (const std::string word : {"false", "0", "off", "No"}) {
    EXPECT_FALSE(parse_train_arguments({"--dropout=" + word}).model.dropout) << word;
  }
}

TEST(TrainFlags, AcceptTheNamesOfTutorialsAndOtherTools) {
  const std::vector<Arguments> forms = {
      {"--nproc", "3", "--nnodes=2", "--node-rank=1", "--accumulate=4"},
      {"--num-machines", "2", "--num-processes", "3", "--machine-id", "1",
       "--micro-batches", "4"},
      {"--num_machines=2", "--num_processes=3", "--machine_id=1", "--micro_batches=4"},
      {"-n", "2", "-g", "3", "-nr", "1", "--micro-batches", "4"},
      {"-n=2", "-g=3", "-nr=1", "--micro-batches=4"},
      {"-n2", "-g3", "-nr1", "--micro-batches=4"},
      {"--nodes=2", "--gpus=3", "--nr=1", "--micro-batches=4"},
      {"--nnodes=2", "--nproc-per-node=3", "--node-rank=1",
       "--gradient-accumulation-steps=4"},
  };
  for (const auto& form : forms) {
    SCOPED_TRACE(join(form, " "));
    auto arguments = form;
    arguments.insert(arguments.end(), {"--master-port", "29500"});
    const auto config = parse_train_arguments(arguments);
    EXPECT_EQ(config.ranks.nnodes, 2);
    EXPECT_EQ(config.ranks.nproc, 3);
    EXPECT_EQ(config.ranks.node_rank, 1);
    EXPECT_EQ(config.training.accumulate, 4);
  }
  const auto config = parse_train_arguments(
      {"--gradient-clip-val=0.5", "--fast-dev-run", "--batch_size=3", "--eval_every",
       "2"});
  EXPECT_EQ(config.strategy.clip_norm, 0.5);
  EXPECT_EQ(config.training.batch_size, 3);
  EXPECT_EQ(config.output.eval_every, 2);
  EXPECT_TRUE(config.output.dry_run);
}

// A run whose settings are in a directory and in the text of a config.toml.
class ResumedFlags : public testing::Test {
 protected:
  ResumedFlags() {
    RunConfig here;
    here.training.seed = 7;
    here.training.epochs = 3;
    make_directories(out_ + "/checkpoints/step-00000004");
    replace_file(out_ + "/config.toml", to_toml(here));
    RunConfig there = here;
    there.training.epochs = 5;
    there.optimizer.lr = 0.25;
    of_rank_0_.text = to_toml(there);
  }
  ~ResumedFlags() override {
    for (const auto& name : names_) {
      unsetenv(name.c_str());
    }
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

  const Scratch scratch_;
  const std::string out_ = scratch_ / "run";
  EarlierSettings of_rank_0_{"", "config.toml of rank 0"};
  std::vector<std::string> names_;
};

TEST_F(ResumedFlags, OverrideTheSettingsOfRank0) {
  const Arguments arguments = {"--resume", "auto", "--out", out_, "--lr", "0.5"};
  EXPECT_EQ(parse_train_arguments(arguments).training.epochs, 3);
  const auto config = parse_train_arguments(arguments, nullptr, &of_rank_0_);
  EXPECT_EQ(config.training.epochs, 5);
  EXPECT_EQ(config.optimizer.lr, 0.5);
  EXPECT_EQ(config.output.out, out_);
  const EarlierSettings none;
  EXPECT_EQ(parse_train_arguments(arguments, nullptr, &none).training.epochs, 1);
}

TEST_F(ResumedFlags, CannotChangeSettingsThatTheRunKeeps) {
  expect_error<ConfigError>(
      [&] {
        parse_train_arguments(
            {"--resume", "auto", "--out", out_, "--seed", "8"}, nullptr, &of_rank_0_);
      },
      {"seed is 8, expected 7 as in 'config.toml of rank 0'"});
}

// The directory on the host of another rank may be that of another run.
TEST_F(ResumedFlags, AfterARestartOnlyRank0ReadsTheDirectory) {
  const Arguments arguments = {"--out", out_, "--epochs", "4"};
  set("TANDEM_ATTEMPT", "1");
  set("WORLD_SIZE", "3");
  for (const auto& [rank, seed] :
       std::vector<std::pair<const char*, int>>{{"0", 7}, {"1", 0}, {"2", 0}}) {
    set("RANK", rank);
    TrainExtras extras;
    const auto config = parse_train_arguments(arguments, &extras);
    EXPECT_EQ(config.training.seed, seed);
    EXPECT_EQ(config.training.epochs, 4);
    EXPECT_EQ(config.output.resume, "auto");
    EXPECT_EQ(extras.earlier.text.empty(), seed == 0);
  }
}

TEST(TrainFlags, RefuseInvalidMasterPorts) {
  for (const auto& [port, says] : std::vector<std::pair<const char*, std::string>>{
           {"abc", "whole number"}, {"70000", "to 65535"}}) {
    setenv("MASTER_PORT", port, 1);
    expect_refused({{{"--nnodes", "2"}, {port, says}}});
  }
  unsetenv("MASTER_PORT");
}

struct BadRecipe {
  std::string text;
  // "@/" stands for the folder of the recipe.
  std::vector<std::string> says;
  int code;
};

TEST(TrainFlags, RefuseInvalidRecipesWithFileAndLine) {
  const std::vector<BadRecipe> recipes = {
      {"model = \"net\"\nepochs = \"three\"\n", {"@/r.toml:2", "epochs", "three"}, 2},
      {"model = 3\n", {"@/r.toml:1", "model", "quotes"}, 2},
      {"\nepochs = 1.5\n", {"@/r.toml:2", "whole number"}, 2},
      {"epochs = [1, 2]\n", {"@/r.toml:1", "epochs"}, 2},
      {"lr = nan\n", {"@/r.toml:1", "lr", "a number"}, 2},
      {"format_version = 1\nmodel = \"net\"\nepoch = 3\n",
       {"@/r.toml:3", "'epoch'", "'epochs'"},
       2},
      {"batch_size = 0\n", {"batch_size is 0", "1 to"}, 2},
      {"this is no recipe\n", {"@/r.toml:1"}, 2},
      {std::string("\xff\xfe\0\1", 4), {"@/r.toml:1"}, 2},
      {"epochs = 1\nepochs = 2\n", {"@/r.toml:2", "'epochs'"}, 2},
      {"epochs = 1\nmodel = net  # ours\n",
       {"@/r.toml:2", "write the text in quotes: model = \"net\""},
       2},
      {"model = \"net\"\n[training]\nepochs = 1\n",
       {"@/r.toml:2", "unknown table [training]", "delete the line [training]"},
       2},
      {"format_version = 2\n",
       {"@/r.toml:1", "format_version is 2", "expected 1", "update tandem"},
       2},
      {"base = \"nosuch.toml\"\n", {"@/nosuch.toml", "No such"}, 1},
      {"base = \"r.toml\"\n", {"@/r.toml:1", "'r.toml'"}, 2},
  };
  const Scratch scratch;
  for (auto recipe : recipes) {
    replace_file(scratch / "r.toml", recipe.text);
    for (auto& text : recipe.says) {
      if (text.rfind("@/", 0) == 0) {
        text = scratch / text.substr(2);
      }
    }
    expect_refused({{{scratch / "r.toml"}, recipe.says, recipe.code}});
  }
}

TEST(TrainFlags, RefuseRecipesThatCannotBeRead) {
  const Scratch scratch;
  replace_file(scratch / "a.toml", "base = \"b.toml\"\n");
  replace_file(scratch / "b.toml", "epochs = 1\nbase = \"a.toml\"\n");
  make_directories(scratch / "folder");
  expect_refused({
      {{scratch / "a.toml"}, {scratch / "b.toml:2", "'a.toml'"}},
      {{scratch / "nosuch.toml"}, {scratch / "nosuch.toml", "check the path"}, 1},
      {{scratch / "folder"}, {scratch / "folder", "name a file in it"}, 1},
  });
}

}  // namespace tandem::app::train_flags_test
