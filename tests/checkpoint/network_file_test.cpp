#include "tandem/checkpoint/network_file.h"

#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::network_file_test {

// A run directory with a checkpoint, whose network file was "net.pt2".
class NetworkFile : public testing::Test {
 protected:
  NetworkFile() {
    make_directories(step_);
    replace_file(net_, "network");
    config_.model.kind = ModelKind::file;
    config_.model.file = net_;
    config_.output.out = run_;
  }

  // Makes the copy and the config.toml of a run that starts.
  void start() const {
    keep_network_file(config_, run_);
    replace_file(run_ + "/config.toml", to_toml(config_));
  }

  RunConfig resumed() const {
    RunConfig config = config_;
    config.output.resume = "auto";
    return config;
  }

  CheckpointNetwork checkpoint() const {
    return {step_ + "/model.safetensors", net_, sha256_hex("network", 7)};
  }

  const Scratch scratch_;
  const std::string run_ = scratch_ / "run";
  const std::string step_ = run_ + "/checkpoints/step-00000004";
  const std::string net_ = scratch_ / "net.pt2";
  const std::string copy_ = run_ + "/network.pt2";
  RunConfig config_;
};

TEST_F(NetworkFile, OfANewRunIsTheFileItself) {
  start();
  EXPECT_EQ(network_file(config_), net_);
  EXPECT_EQ(read_file(copy_), "network");
}

TEST_F(NetworkFile, OfANewRunReplacesEarlierCopies) {
  replace_file(copy_, "other");
  replace_file(run_ + "/network.pt", "other");
  start();
  EXPECT_EQ(read_file(copy_), "network");
  EXPECT_FALSE(file_exists(run_ + "/network.pt"));
}

TEST_F(NetworkFile, OfAResumedRunIsTheCopy) {
  start();
  replace_file(net_, "changed");
  EXPECT_EQ(network_file(resumed()), copy_);
  keep_network_file(resumed(), run_);
  EXPECT_EQ(read_file(copy_), "network");
}

TEST_F(NetworkFile, OfAResumedRunMayBeNamedAgain) {
  start();
  RunConfig config = resumed();
  config.model.file = scratch_ / "moved.pt2";
  expect_error<DataError>([&] { network_file(config); }, {"moved.pt2", "--model FILE"});
  replace_file(config.model.file, "network");
  EXPECT_EQ(network_file(config), config.model.file);
}

TEST_F(NetworkFile, OfAResumedRunIsCopiedToAnotherRun) {
  start();
  RunConfig config = resumed();
  config.output.resume = step_;
  const auto other = scratch_ / "other";
  make_directories(other);
  keep_network_file(config, other);
  EXPECT_EQ(read_file(other + "/network.pt2"), "network");
}

TEST_F(NetworkFile, MissesAreReportedWithAdvice) {
  start();
  remove_all(net_);
  expect_error<DataError>(
      [&] { network_file(config_); }, {net_, "check the path of --model"});
  EXPECT_EQ(network_file(resumed()), copy_);
  remove_all(copy_);
  expect_error<DataError>(
      [&] { network_file(resumed()); }, {net_, run_, "--model FILE"});
}

TEST_F(NetworkFile, OfACheckpointIsItsRunsCopy) {
  start();
  EXPECT_EQ(network_file_of(checkpoint()), copy_);
  // A file with another content does not count.
  replace_file(copy_, "other");
  EXPECT_EQ(network_file_of(checkpoint()), net_);
  replace_file(net_, "other");
  expect_error<ConfigError>(
      [&] { network_file_of(checkpoint()); },
      {"another file", "SHA-256", "--model FILE"});
  remove_all(net_);
  remove_all(copy_);
  expect_error<DataError>(
      [&] { network_file_of(checkpoint()); }, {"missing", net_, "--model FILE"});
}

TEST_F(NetworkFile, OfACheckpointCanBeNamed) {
  start();
  const auto moved = scratch_ / "moved.pt2";
  expect_error<DataError>([&] { network_file_of(checkpoint(), moved); }, {"moved.pt2"});
  replace_file(moved, "other");
  expect_error<ConfigError>(
      [&] { network_file_of(checkpoint(), moved); }, {"another file"});
  replace_file(moved, "network");
  EXPECT_EQ(network_file_of(checkpoint(), moved), moved);
}

// A run with a TorchScript file, which contains code.
class Script : public NetworkFile {
 protected:
  Script() {
    config_.model.file = script_;
    replace_file(script_, "network");
    start();
  }

  // Returns the settings of a command that continues the run, as read from config.toml.
  RunConfig read_again(ScriptTrust trust) const {
    RunConfig config;
    read_recipe(config, run_ + "/config.toml");
    EXPECT_EQ(config.model.trust, ScriptTrust::none);
    config.model.trust = trust;
    config.output.resume = "auto";
    return config;
  }

  const std::string script_ = scratch_ / "net.pt";
  const std::string script_copy_ = run_ + "/network.pt";
};

TEST_F(Script, OfARecipeIsRefused) {
  auto config = read_again(ScriptTrust::none);
  config.output.resume = "";
  expect_error<ConfigError>(
      [&] { network_file(config); },
      {"[model] '" + script_ + "' is TorchScript, which runs code",
       "--model " + script_, "--trust"});
  config.model.trust = ScriptTrust::named;
  EXPECT_EQ(network_file(config), script_);
}

TEST_F(Script, OfAResumedRunIsUsedOnlyIfItIsNamedOrTrusted) {
  expect_error<ConfigError>(
      [&] { network_file(read_again(ScriptTrust::none)); },
      {"'" + script_copy_ + "' is TorchScript", "--trust"});
  // The file that the command names, not the copy.
  EXPECT_EQ(network_file(read_again(ScriptTrust::named)), script_);
  EXPECT_EQ(network_file(read_again(ScriptTrust::all)), script_copy_);
  // A restart uses the copy, which is therefore the file that was named.
  replace_file(script_copy_, "evil");
  keep_network_file(read_again(ScriptTrust::named), run_);
  EXPECT_EQ(read_file(script_copy_), "network");
  remove_all(script_);
  expect_error<ConfigError>(
      [&] { network_file(read_again(ScriptTrust::named)); }, {script_copy_, "--trust"});
  EXPECT_EQ(network_file(read_again(ScriptTrust::all)), script_copy_);
}

TEST_F(Script, OfACheckpointIsUsedOnlyIfItIsNamedOrTrusted) {
  CheckpointNetwork of_checkpoint = checkpoint();
  of_checkpoint.file = script_;
  expect_error<ConfigError>(
      [&] { network_file_of(of_checkpoint); },
      {"'" + script_copy_ + "' is TorchScript", "--model " + script_copy_, "--trust"});
  EXPECT_EQ(network_file_of(of_checkpoint, script_), script_);
  EXPECT_EQ(network_file_of(of_checkpoint, "", true), script_copy_);
  // In the folders between the run and the checkpoint, and the file of the training.
  for (const auto& path : {step_ + "/network.pt", run_ + "/checkpoints/network.pt"}) {
    replace_file(path, "network");
    expect_error<ConfigError>([&] { network_file_of(of_checkpoint); }, {path});
    remove_all(path);
  }
  remove_all(script_copy_);
  expect_error<ConfigError>([&] { network_file_of(of_checkpoint); }, {script_});
}

TEST_F(NetworkFile, AChangedCopyIsNamed) {
  start();
  replace_file(copy_, "other");
  replace_file(net_, "another");
  expect_error<ConfigError>(
      [&] { network_file_of(checkpoint()); }, {"'" + copy_ + "' is another file"});
}

}  // namespace tandem::network_file_test
