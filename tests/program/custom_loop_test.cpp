// The examples of custom loops: a loop that is killed and then resumed or restarted,
// and an MPI program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <set>

#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/launch/mpirun.h"
#include "tests/faults/file_faults.h"
#include "tests/lines.h"
#include "tests/parity/python.h"
#include "tests/program/program.h"

namespace tandem::custom_loop_test {

using testing::HasSubstr;

TEST(CompiledLoop, HasTheLossOfTheNetwork) {
  const auto loss = [](const std::string& mode) {
    const auto output =
        checked(run_command({program("compiled_loop"), mode, "8"}, {}, 800)).output;
    const size_t at = output.find("mean loss ");
    EXPECT_NE(at, std::string::npos) << output;
    return std::stod(output.substr(at + 10));
  };
  EXPECT_NEAR(loss("compiled"), loss("eager"), 0.002);
  EXPECT_EQ(loss("checkpoint"), loss("eager"));
}

// Returns the hashes of the weights that ranks print.
std::set<std::string> weights_of_sharded_loop(
    int ranks, const std::string& shard, const std::string& epochs = "1",
    const Arguments& directory = {}) {
  const auto run = run_ok(with(
      {"launch", "--nproc-per-node", std::to_string(ranks), program("sharded_loop"),
       shard, epochs, "400"},
      directory));
  std::set<std::string> hashes;
  for (const auto& line : lines_with(run.output, "weights ")) {
    hashes.insert(line.substr(line.find("weights ")));
  }
  return hashes;
}

TEST(ShardedLoopExample, HasOneResultForEachKindOfSharding) {
  // 400 samples in batches of 64: with 3 ranks, one rank has a batch more.
  for (const int ranks : {2, 3}) {
    const auto expected = weights_of_sharded_loop(ranks, "none");
    EXPECT_EQ(expected.size(), 1);
    for (const char* shard : {"optimizer", "gradients", "parameters"}) {
      EXPECT_EQ(weights_of_sharded_loop(ranks, shard), expected) << shard;
    }
  }
}

TEST(ShardedLoopExample, ResumesWithOtherSharding) {
  const Scratch scratch;
  const auto whole = weights_of_sharded_loop(3, "none", "2");
  weights_of_sharded_loop(3, "parameters", "1", {scratch / "checkpoints"});
  EXPECT_EQ(
      weights_of_sharded_loop(3, "optimizer", "2", {scratch / "checkpoints"}), whole);
}

class ResumableLoop : public testing::Test {
 protected:
  static Arguments launch(int ranks, const std::string& directory, int epochs = 10) {
    return {"launch",
            "--nproc-per-node",
            std::to_string(ranks),
            program("resumable_loop"),
            directory,
            std::to_string(epochs)};
  }

  static std::string weights_in(const std::string& directory) {
    return read_file(directory + "/net.safetensors");
  }

  // Starts the loop, and kills it up to 30 ms after it has saved its next checkpoint.
  // Returns the path of the newest checkpoint.
  std::string kill_after_checkpoint(int ranks, const std::string& directory) {
    const auto before = newest_or_none(directory);
    Process process({with({program()}, launch(ranks, directory)), {}, true});
    while (newest_or_none(directory) == before && !process.poll()) {
      usleep(1'000);
    }
    usleep(static_cast<useconds_t>(random_() % 30'000));
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait().signal, SIGKILL) << "the loop ended before it was killed";
    return newest_or_none(directory);
  }

  static std::string newest_or_none(const std::string& directory) {
    return file_exists(directory) ? newest_checkpoint(directory) : "";
  }

  Scratch scratch_;
  std::mt19937 random_{7};
};

TEST_F(ResumableLoop, KilledLoopsEndWithTheSameBits) {
  const auto whole = scratch_ / "whole";
  const auto killed = scratch_ / "killed";
  run_ok(launch(2, whole));
  for (int kill = 0; kill < 3; ++kill) {
    kill_after_checkpoint(2, killed);
  }
  const auto last = run_ok(launch(2, killed));
  EXPECT_THAT(last.output, HasSubstr("resumed at step"));
  EXPECT_EQ(weights_in(killed), weights_in(whole));
}

// Dropout masks and the order of sums depend on the number of ranks.
TEST_F(ResumableLoop, ResumesWithAnotherNumberOfRanks) {
  const auto directory = scratch_ / "run";
  const auto of_two = kill_after_checkpoint(2, directory);
  const auto of_three = kill_after_checkpoint(3, directory);
  EXPECT_LT(of_two, of_three);
  const auto last = run_ok(launch(1, directory));
  const auto loss = lines_after(last.output, "loss ");
  ASSERT_EQ(loss.size(), 1u) << last.output;
  // The targets' variance is 20.
  EXPECT_LT(std::stod(loss[0]), 2);
}

// --- restarted by a launcher ---

// Starts a rank of the loop, and writes the rank's variables of torchrun to a file. In
// the first attempt, rank 0 is killed while it removes the checkpoint of step 20, which
// is after it has saved the checkpoint of step 50.
// Arguments: the directory of the files, and the command of the loop.
constexpr const char* kRestartedRank = R"sh(
  files=$1
  shift
  for name in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE \
      ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE TORCHELASTIC_RUN_ID TORCHELASTIC_MAX_RESTARTS \
      TORCHELASTIC_RESTART_COUNT; do
    echo "$name=$(printenv $name)"
  done > $files/variables-$TORCHELASTIC_RESTART_COUNT-$RANK
  if [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 0 ]; then
    LD_PRELOAD=$files/file_faults.so TANDEM_FILE_FAULT="$FAULT" "$@"
    kill -KILL $$
  fi
  exec "$@"
)sh";

// A launcher with torchrun's flags.
struct Launcher {
  const char* name;
  Arguments command;
};

using tandem::operator<<;

class RestartedLoop : public ResumableLoop,
                      public testing::WithParamInterface<Launcher> {
 protected:
  void SetUp() override {
    if (!file_exists(GetParam().command[0])) {
      GTEST_SKIP() << "no torchrun of PyPI; scripts/setup --torchrun, then "
                      "scripts/test -R RestartedLoop";
    }
  }
  // Returns the variables of a rank that was restarted once.
  static std::string variables_of(int rank) {
    const auto number = std::to_string(rank);
    return "RANK=" + number + "\nWORLD_SIZE=3\n" + "LOCAL_RANK=" + number +
           "\nLOCAL_WORLD_SIZE=3\n" + "GROUP_RANK=0\nGROUP_WORLD_SIZE=1\n" +
           "ROLE_NAME=trainer\nROLE_RANK=" + number + "\nROLE_WORLD_SIZE=3\n" +
           "TORCHELASTIC_RUN_ID=7\nTORCHELASTIC_MAX_RESTARTS=1\n" +
           "TORCHELASTIC_RESTART_COUNT=1\n";
  }
};

TEST_P(RestartedLoop, HasTheVariablesOfTorchrunAndTheWeightsOfAnUndisturbedOne) {
  // LD_PRELOAD separates names by spaces, and the path of the build may have one.
  std::filesystem::create_symlink(
      binary_dir() + "/tests/libfile_faults.so", scratch_ / "file_faults.so");
  const auto directory = scratch_ / "run";
  const auto fault = std::to_string(static_cast<int>(FaultKind::die)) + " 3 0 " +
                     directory + "/tmp-step-00000020";
  const Arguments flags = {"--nproc-per-node=3",  "--max-restarts=1",
                           "--rdzv-id=7",         "--role=trainer",
                           "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
                           "--no-python"};
  const Arguments loop = {
      "sh",      "-c", kRestartedRank, "sh", scratch_.path(), program("resumable_loop"),
      directory, "1"};
  const auto run = checked(
      run_command(with(GetParam().command, flags, loop), {{"FAULT", fault}}, 300));
  EXPECT_THAT(run.output, HasSubstr("resumed at step 50\n"));
  for (int rank = 0; rank < 3; ++rank) {
    const auto file = scratch_ / ("variables-1-" + std::to_string(rank));
    EXPECT_EQ(read_file(file), variables_of(rank));
  }
  const auto undisturbed = run_ok(launch(3, scratch_ / "whole", 1));
  const auto weights = lines_after(undisturbed.output, "weights ");
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_EQ(lines_after(run.output, "weights "), weights);
}

INSTANTIATE_TEST_SUITE_P(
    Under, RestartedLoop,
    testing::Values(
        Launcher{"TandemLaunch", {program(), "launch"}},
        Launcher{"Torchrun", {torchrun()}}),
    testing::PrintToStringParamName());

// --- MPI ---

// Hash and norm of the weights.
struct Result {
  std::string hash;
  double norm = 0;
};

Result result_of(const std::string& name, int ranks, const Arguments& arguments = {}) {
  const auto run = checked(
      run_command(mpirun_command(ranks, with({program(name)}, arguments)), {}, 100));
  const auto hashes = lines_after(run.output, "weights ");
  const auto norms = lines_after(run.output, "norm ");
  if (hashes.size() != 1 || norms.size() != 1) {
    ADD_FAILURE() << run.output;
    return {};
  }
  return {hashes[0], std::stod(norms[0])};
}

// With more than two ranks, Open MPI does not add in the order of the ranks. The norm
// differs by less than 1e-5 (float32).
TEST(MpiLoop, ConvertedProgramHasTheSameBitsUpToTheOrderOfSums) {
  TANDEM_NEEDS_MPI();
  std::set<std::string> all;
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const auto by_hand = result_of("mpi_loop_by_hand", ranks);
    const auto converted = result_of("mpi_loop", ranks);
    if (ranks <= 2) {
      EXPECT_EQ(converted.hash, by_hand.hash);
    } else {
      EXPECT_EQ(result_of("mpi_loop", ranks, {"mpi-order"}).hash, by_hand.hash);
    }
    EXPECT_NEAR(converted.norm, by_hand.norm, 1e-5);
    all.insert(by_hand.hash);
  }
  EXPECT_EQ(all.size(), 2u);
}

// Counts the lines of code that are new or changed; the loop over the parameters is
// removed.
TEST(MpiLoopSource, ConversionAddsAtMostTenLines) {
  const auto folder = source_dir() + "/examples/mpi_loop/";
  const auto diff =
      run_command({"diff", folder + "by_hand.cpp", folder + "main.cpp"}, {}, 10);
  int added = 0;
  for (const auto& line : lines_after(diff.output, "> ")) {
    added += line.empty() || line.rfind("//", 0) == 0 ? 0 : 1;
  }
  EXPECT_GT(added, 3);
  EXPECT_LE(added, 10);
}

}  // namespace tandem::custom_loop_test
