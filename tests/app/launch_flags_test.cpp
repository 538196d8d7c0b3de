// Arguments of `tandem launch` that are refused before any rank starts.

#include "app/launch_flags.h"

#include "tests/app/refusals.h"

namespace tandem::app::launch_flags_test {

void expect_refused(const std::vector<Refusal>& refusals) {
  app::expect_refused(refusals, [](const Arguments& arguments) {
    launch_ranks(parse_launch(arguments).options);
  });
}

TEST(LaunchFlags, RefuseInvalidValues) {
  expect_refused({
      {{}, {"the program is missing"}},
      {{"--nproc", "0", "true"}, {"'0'", "1 to 4096"}},
      {{"--nproc", "none", "true"}, {"'none'", "1 to 4096"}},
      {{"--nnodes", "0", "true"}, {"--nnodes", "'0'", "1 to"}},
      {{"--nnodes", "x", "true"}, {"--nnodes", "'x'"}},
      {{"--nnodes=1:4", "true"}, {"'1:4'", "one number"}},
      {{"--master-port", "99999", "true"}, {"'99999'", "65535"}},
      {{"--grace-seconds", "-1", "true"}, {"-1", "--grace-seconds"}},
      {{"-m", "--no-python", "true"}, {"--module", "--no-python"}},
      {{"--nporc", "2", "true"}, {"--nporc", "'--nproc'"}},
  });
}

TEST(LaunchFlags, RefuseIncompleteSettingsOfSeveralHosts) {
  expect_refused({
      {{"--nnodes", "2", "true"}, {"--master-port"}},
      {{"--nnodes", "2", "--node-rank", "2", "--master-port", "4242", "true"},
       {"node rank is 2 of 2 hosts", "--node-rank"}},
      {{"--nnodes", "2", "--master-port", "4242", "--master-addr", "10.77.0.1", "true"},
       {"several hosts need a token", "umask 077"}},
      {{"--nnodes=2", "--rdzv-endpoint=127.0.0.1:4242", "true"},
       {"--rdzv-endpoint", "--node-rank"}},
      {{"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=127.0.0.1", "true"},
       {"'127.0.0.1'", "HOST:PORT"}},
      {{"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=127.0.0.1:x", "true"},
       {"'x'", "1 to 65535"}},
  });
}

struct BadVariable {
  std::string name;
  std::string value;
  const char* expected;
};

TEST(TorchrunVariables, NameTheVariableOfAnInvalidValue) {
  const BadVariable variables[] = {
      {"PET_NNODES", "x", "1 to 65536"},
      {"PET_NNODES", "0", "1 to 65536"},
      {"PET_NNODES", "1:4", "one number"},
      {"PET_NPROC_PER_NODE", "two", "1 to 4096, auto, cpu or gpu"},
      {"PET_NODE_RANK", "-1", "0 to 65535"},
      {"PET_MASTER_PORT", "70000", "0 to 65535"}};
  using Command = TorchrunVariables::Command;
  for (const auto& bad : variables) {
    for (const auto command : {Command::launch, Command::train}) {
      TorchrunVariables all([&](const std::string& name) {
        return name == bad.name ? std::optional(bad.value) : std::nullopt;
      });
      app::expect_refused(
          {{{}, {bad.name + " is '" + bad.value, bad.expected}}},
          [&](const Arguments& none) { return all.add_flags(none, command); });
    }
  }
}

}  // namespace tandem::app::launch_flags_test
