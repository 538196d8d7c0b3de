// Runs of the real program with real processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "program.h"
#include "tests/base/test_tools.h"
#include "tests/program/ranks/workers.h"

namespace tandem::train_test {

using testing::HasSubstr;

// Small enough for a test, large enough for two epochs of several steps.
Arguments small_run(const std::string& out) {
  return {"train", "--model",    "convnet", "--limit", "640", "--epochs",
          "2",     "--schedule", "step",    "--out",   out};
}

TEST(Train, ThreadRanksGiveTheBitsOfProcessRanks) {
  const Scratch scratch;
  for (const std::string type : {"process", "thread"}) {
    run_ok(with(small_run(scratch / type), {"--nproc", "3", "--rank-type", type}));
  }
  EXPECT_EQ(hash_of(scratch / "process").size(), 64u);
  EXPECT_EQ(hash_of(scratch / "thread"), hash_of(scratch / "process"));
}

// The result of an evaluation, without the accuracy in percent.
std::string last_test(const std::string& output) {
  const size_t last = output.rfind("Test set: ");
  return output.substr(last, output.find('(', last) - last);
}

TEST(Train, RunDirectoryHasAllFilesToEvaluateAndRepeatTheRun) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto trained = run_ok(with(small_run(out), {"--trace"}));
  const auto checkpoint = out + "/checkpoints/step-00000020";
  for (const auto& name :
       {out + "/config.toml", out + "/environment.json", out + "/metrics.jsonl",
        out + "/summary.json", out + "/trace/rank-0.json",
        checkpoint + "/model.safetensors", checkpoint + "/training.safetensors"}) {
    EXPECT_TRUE(file_exists(name)) << name;
  }
  const auto summary = out + "/summary.json";
  EXPECT_EQ(json_number(summary, "steps"), 20);
  EXPECT_EQ(json_number(summary, "world_size"), 1);
  EXPECT_GT(json_number(summary, "samples_per_second"), 0);
  EXPECT_GT(json_number(summary, "test_accuracy"), 30);
  const auto evaluated = run_ok({"eval", "--checkpoint", checkpoint, "--limit", "640"});
  EXPECT_THAT(evaluated.output, HasSubstr(last_test(trained.output)));
  const auto again = scratch / "again";
  run_ok({"train", out + "/config.toml", "--out", again});
  EXPECT_EQ(hash_of(again), hash_of(out));
}

TEST(Train, ANewRunRefusesCheckpointsOfAnotherRun) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const Arguments command = {"train",     "--limit", "640", "--model",
                             "simplenet", "--out",   out};
  run_ok(command);
  const auto summary = read_file(out + "/summary.json");
  const auto again = tandem_run(command);
  expect_exit(again, 2, {"--resume auto"});
  EXPECT_EQ(read_file(out + "/summary.json"), summary);
  run_ok(with(command, {"--resume", "auto", "--epochs", "2"}));
  EXPECT_EQ(json_number(out + "/summary.json", "steps"), 20);
}

TEST(Train, PrintsPlainLinesWithoutATerminal) {
  const auto result = run_ok({"train", "--limit", "640", "--model", "simplenet"});
  expect_parts(
      result.output, {"epoch 1/1  step 10/10  loss ", "Test set: Average loss: "});
  EXPECT_THAT(result.output, Not(HasSubstr("\033")));
}

TEST(Train, WarnsOnceThatNothingIsSaved) {
  const Scratch scratch;
  const Arguments run = {"train", "--limit", "640", "--model", "simplenet"};
  const auto line = "this run saves nothing; set --out DIR";
  EXPECT_EQ(lines_with(run_ok(with(run, {"--nproc", "2"})).errors, line).size(), 1u);
  EXPECT_THAT(run_ok(with(run, {"--dry-run"})).errors, Not(HasSubstr(line)));
  EXPECT_THAT(
      run_ok(with(run, {"--out", scratch / "run"})).errors, Not(HasSubstr(line)));
}

TEST(Train, EvaluatesAfterEveryNthEpochAndTheLast) {
  const auto result = run_ok(
      {"train", "--limit", "128", "--model", "simplenet", "--epochs", "5",
       "--eval-every", "2", "--test-line", "tested epoch {epoch}"});
  for (const char* epoch : {"2", "4", "5"}) {
    EXPECT_THAT(result.output, HasSubstr("tested epoch " + std::string(epoch)));
  }
  for (const char* epoch : {"1", "3"}) {
    EXPECT_THAT(result.output, Not(HasSubstr("tested epoch " + std::string(epoch))));
  }
}

std::vector<double> losses_of_net(const std::string& precision, const char* isa) {
  const Scratch scratch;
  const auto result = run_ok(
      {"train", "--model", "net", "--limit", "192", "--epochs", "1", "--precision",
       precision, "--log-every", "1", "--log-line", "{batch_loss}", "--test-line",
       "off", "--out", scratch / "run"},
      {{"ONEDNN_MAX_CPU_ISA", isa}});
  EXPECT_THAT(result.output, HasSubstr("executor compiled, " + precision + ", "));
  std::vector<double> losses;
  for (const auto& line : split(result.output, '\n')) {
    char* end = nullptr;
    const double loss = std::strtod(line.c_str(), &end);
    if (end != line.c_str() && *end == 0) {
      losses.push_back(loss);
    }
  }
  EXPECT_EQ(losses.size(), 3u);
  return losses;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]) / b[i]);
  }
  return most;
}

// A CPU without bfloat16 rounds where a CPU with bfloat16 does. The runs differ by the
// order of sums, which is much less than the difference between bfloat16 and float32. Ten
// steps are too many: the order of sums moves the losses as far as bfloat16 does.
TEST(Train, Bfloat16WithoutInstructionsGivesNearlyEqualNumbers) {
  const auto computed = losses_of_net("bf16", "ALL");
  const auto rounded = losses_of_net("bf16", "AVX2");
  const auto wide = losses_of_net("fp32", "AVX2");
  EXPECT_GT(distance(rounded, wide), 1e-4);
  RecordProperty("apart", std::to_string(distance(rounded, computed)));
  RecordProperty("from_float32", std::to_string(distance(rounded, wide)));
  EXPECT_LT(10 * distance(rounded, computed), distance(rounded, wide));
}

TEST(Train, DryRunDoesTwoStepsEvaluatesAndSavesNothing) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto result = run_ok(
      {"train", "--fast-dev-run", "--gradient-clip-val", "0.5", "--epochs", "9",
       "--eval-every", "3", "--limit", "1000", "--out", out});
  EXPECT_EQ(json_number(out + "/summary.json", "steps"), 2);
  EXPECT_THAT(result.output, HasSubstr("Test set: Average loss"));
  EXPECT_THAT(read_file(out + "/config.toml"), HasSubstr("\nclip_norm = 0.5\n"));
  EXPECT_FALSE(file_exists(out + "/checkpoints"));
}

struct ByHand {
  int rank;
  int world_size;
  const char* backend = "auto";
};

// Every rank gets the error, in any order of joining, and none waits for its timeout.
void expect_all_say(const std::string& what, const std::vector<ByHand>& ranks) {
  const auto port = unused_port();
  const auto results = run_together(static_cast<int>(ranks.size()), [&](int i) {
    const auto& [rank, world_size, backend] = ranks[static_cast<size_t>(i)];
    return tandem_run(
        {"train", "--limit", "640", "--timeout-seconds", "60", "--backend", backend},
        variables_of_rank(rank, world_size, port));
  });
  for (const auto& result : results) {
    expect_error_line(result, 2, {what});
  }
}

TEST(Train, RanksWithDifferentSettingsAllGetTheError) {
  expect_all_say("WORLD_SIZE", {{0, 3}, {1, 2}});
  expect_all_say("--backend", {{0, 2, "gloo"}, {1, 2}});
  expect_all_say("rank 1 has joined twice", {{0, 3}, {1, 3}, {1, 3}});
}

TEST(Train, DataIsReadOncePerHost) {
  const Scratch scratch;
  run_ok(
      {"data", "make", "digits", "--train", "64", "--test", "32", "--out",
       scratch / "data"});
  struct Case {
    Arguments arguments;
    Variables variables;
    size_t mapped;
  };
  const std::vector<Case> cases = {
      {{}, {}, 1},
      {{"--nproc", "3"}, {}, 3},
      {{"--nproc", "4", "--rank-type", "thread"}, {}, 1},
      // Other ranks do not need data that rank 0 scatters.
      {{"--nproc", "3", "--share", "scatter"}, {}, 0},
      // Under another launcher each rank reads the data.
      {{}, variables_of_rank(0, 1, unused_port()), 0}};
  for (const auto& one : cases) {
    auto variables = one.variables;
    variables.emplace_back("TANDEM_LOG", "debug");
    const auto result = run_ok(
        with(
            {"train", "--data", scratch / "data", "--model", "simplenet", "--dry-run"},
            one.arguments),
        variables);
    EXPECT_EQ(lines_with(result.errors, "memory that ranks share").size(), one.mapped)
        << testing::PrintToString(one.arguments) << result.errors;
  }
}

// The process that reads the data for all ranks of the host; a pipe delays it.
void expect_stopped_reader_is_named(
    const std::vector<std::string>& ranks, size_t num_workers) {
  const Scratch scratch;
  const auto data = scratch / "data";
  make_directories(data);
  ASSERT_EQ(mkfifo((data + "/train-images-idx3-ubyte").c_str(), 0600), 0);
  for (const char* name :
       {"train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte"}) {
    replace_file(data + "/" + name, "");
  }
  Process run(
      {with({program(), "train", "--data", data, "--timeout-seconds", "5"}, ranks),
       {},
       true});
  EXPECT_TRUE(eventually([&] { return workers_of(data).size() == num_workers; }));
  pid_t reader = 0;
  for (const auto& name : list_directory("/proc")) {
    const pid_t pid = std::atoi(name.c_str());
    // Workers are ranks, and the fork server if it has not ended yet.
    std::string program_name;
    std::getline(std::ifstream("/proc/" + name + "/comm"), program_name);
    if (pid > 0 && parent_of_process(pid) == run.pid() && program_name == "tandem") {
      reader = pid;
    }
  }
  ASSERT_GT(reader, 0);
  kill(reader, SIGSTOP);
  EXPECT_EQ(run.wait().describe(), "exited with code 1");
  char buffer[4096];
  const auto size = read(run.error_fd(), buffer, sizeof(buffer));
  const std::string errors(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  expect_parts(
      errors,
      {"process " + std::to_string(reader), "within 5 s: it is stopped (SIGSTOP)"});
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  // If its parent does not reap it, the kernel ends it after its parent ended.
  EXPECT_TRUE(eventually([&] { return !is_running(reader); }));
}

TEST(Train, AStoppedReaderIsNamedAfterTheTimeout) {
  expect_stopped_reader_is_named({"--nproc", "3"}, 3);
}

TEST(Train, AStoppedReaderIsNamedByThreadRanks) {
  expect_stopped_reader_is_named({"--nproc", "3", "--rank-type", "thread"}, 1);
}

TEST(Train, AKilledRankIsNamedWithItsSignal) {
  const Scratch scratch;
  const auto out = scratch / "run";
  auto run = std::async(std::launch::async, [&] {
    return tandem_run({"train", "--nproc", "3", "--epochs", "50", "--out", out});
  });
  wait_until_it_reports(out);
  const auto workers = workers_of(out);
  EXPECT_EQ(workers.size(), 3u);
  if (!workers.empty()) {
    kill(workers.back(), SIGKILL);
  }
  const auto killed = std::chrono::steady_clock::now();
  const auto result = run.get();
  // This tests no speed, only that no process hangs.
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(10));
  expect_exit(
      result, 1, {"was killed by SIGKILL", "rank ", std::to_string(workers.back())});
  EXPECT_TRUE(workers_of(out).empty());
}

// A run must not let other users read files that the user's umask protects.
TEST(Train, FilesObeyTheUmask) {
  const Scratch scratch;
  for (const auto& [mask, wanted] :
       {std::pair<const char*, unsigned>{"077", 0600}, {"022", 0644}}) {
    const auto out = scratch / mask;
    checked(run_command(
        {"sh", "-c", "umask $0; exec \"$@\"", mask, program(), "train", "--limit",
         "100", "--epochs", "1", "--model", "simplenet", "--trace", "--out", out}));
    int files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
      if (entry.is_regular_file()) {
        ++files;
        EXPECT_EQ(static_cast<unsigned>(entry.status().permissions()), wanted)
            << entry.path();
      }
    }
    EXPECT_GE(files, 7);
  }
}

}  // namespace tandem::train_test
