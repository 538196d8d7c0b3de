// Runs whose standard input, output or error is closed, full or unread.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/program/bad_input/bad_input.h"
#include "tests/report/report_series.h"

namespace tandem::closed_output_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// `streams`: redirections of a shell, such as ">&- 2>&-". "$0" is a name in `folder`
// for the shell to use.
CommandResult run_with(
    const std::string& streams, const Arguments& command,
    const std::string& folder = "", const Variables& variables = {}) {
  return run_command(
      with({"sh", "-c", "exec \"$@\" " + streams, folder + "/shell"}, command),
      variables, 300);
}

// The same, but descriptor 4 is a pipe that is not read.
CommandResult run_without_reader(
    const std::string& streams, const Arguments& command, const std::string& folder) {
  const auto result = run_command(
      with(
          {"sh", "-c",
           R"(mkfifo "$0"; exec 3<>"$0" 4>"$0" 3<&-; exec "$@" )" + streams + " 4>&-",
           folder + "/fifo"},
          command),
      {}, 300);
  remove_all(folder + "/fifo");
  return result;
}

// Returns "<&-" and so on for the descriptors whose bits are set.
std::string closing(int descriptors) {
  return std::string((descriptors & 1) != 0 ? "<&- " : "") +
         ((descriptors & 2) != 0 ? ">&- " : "") +
         ((descriptors & 4) != 0 ? "2>&-" : "");
}

std::vector<std::string> tandem_command(const Arguments& arguments) {
  return with({program()}, arguments);
}

// The warning of a run about its lost output.
std::vector<std::string> notes_of(const std::string& run) {
  std::vector<std::string> notes;
  for (const auto& line : metrics_of(run)) {
    if (line.value("kind", "") == "lost_output") {
      notes.push_back(line.value("where", ""));
    }
  }
  return notes;
}

const Way kWays[] = {
    {"OneRank", {}},
    {"Threads", {"--nproc", "4", "--rank-type", "thread"}},
    {"Shm", {"--nproc", "2", "--backend", "shm", "--drift-check", "off"}},
    {"Gloo", {"--nproc", "3", "--backend", "gloo", "--drift-check", "off"}},
    {"Averaging", {"--nproc", "3", "--strategy", "averaging"}}};

class ClosedStreams : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    stage_.data("data");
  }

  // A report for each of many steps.
  std::vector<std::string> train_into(const std::string& run) const {
    return tandem_command(with(
        {"train", "--data", stage_ / "data", "--model", "simplenet", "--batch-size",
         "4", "--epochs", "2", "--log-every", "1", "--out", stage_ / run},
        GetParam().flags));
  }

  std::string undisturbed_bits() const {
    checked(run_command(train_into("undisturbed")));
    EXPECT_THAT(notes_of(stage_ / "undisturbed"), IsEmpty());
    return hash_of(stage_ / "undisturbed");
  }

  const Stage stage_;
};

TEST_P(ClosedStreams, ChangeNoBitOfARun) {
  const auto bits = undisturbed_bits();
  ASSERT_EQ(bits.size(), 64u);
  // Standard output; input and error; all.
  for (const int closed : {2, 5, 7}) {
    const auto run = "run" + std::to_string(closed);
    const auto result = run_with(closing(closed), train_into(run));
    EXPECT_TRUE(result.status.ok()) << closing(closed) << result.errors;
    EXPECT_EQ(hash_of(stage_ / run), bits) << closing(closed);
    const auto notes = notes_of(stage_ / run);
    if ((closed & 2) != 0) {
      EXPECT_THAT(notes, ElementsAre("standard output: Bad file descriptor"));
    } else {
      EXPECT_THAT(notes, IsEmpty()) << closing(closed);
    }
  }
}

// Errors take the same path in all variants; here, with and without a launcher.
class FullStreams : public ClosedStreams {};

TEST_P(FullStreams, WarnOnceAndChangeNoBit) {
  const auto bits = undisturbed_bits();
  const auto expect = [&](const CommandResult& result, const std::string& run,
                          const std::string& note) {
    EXPECT_TRUE(result.status.ok()) << run << ": " << result.errors;
    EXPECT_EQ(hash_of(stage_ / run), bits) << run;
    EXPECT_THAT(notes_of(stage_ / run), ElementsAre(note)) << run;
  };
  const std::string folder = stage_ / "";
  const auto full = run_with(">/dev/full", train_into("full"));
  expect(full, "full", "standard output: No space left on device");
  EXPECT_THAT(sorted_lines(full.errors), SizeIs(1));
  EXPECT_THAT(
      full.errors, HasSubstr("cannot write to standard output: No space left on device;"
                             " the run continues without it"));
  const auto unread = run_without_reader(">&4 2>&4", train_into("unread"), folder);
  expect(unread, "unread", "standard output: Broken pipe");
  // A message that standard error would lose.
  const auto command = with(train_into("silent"), {"--resume", "auto"});
  for (const char* streams : {"2>/dev/full", "2>&-", "2>&4"}) {
    remove_all(stage_ / "silent");
    expect(run_without_reader(streams, command, folder), "silent", "standard error");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ClosedStreams, testing::ValuesIn(kWays), testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Ways, FullStreams, testing::Values(kWays[0], kWays[2]),
    testing::PrintToStringParamName());

class Output : public testing::Test {
 protected:
  void SetUp() override {
    stage_.data("data");
  }

  std::vector<std::string> small_run(const std::string& run) const {
    return {"train",   "--data",      stage_ / "data",
            "--model", "simplenet",   "--epochs",
            "3",       "--log-every", "1",
            "--out",   stage_ / run,  "--batch-size",
            "16"};
  }

  const Stage stage_;
};

TEST_F(Output, OfARunMayBeClosedEarly) {
  const auto result = run_command(with(
      {"sh", "-c", R"({ "$@"; echo $? > "$0"; } 2>&1 | head -1)", stage_ / "code"},
      tandem_command(small_run("run")), {"--nproc", "3"}));
  EXPECT_THAT(result.output, HasSubstr("simplenet"));
  EXPECT_EQ(stage_.read("code"), "0\n");
  EXPECT_EQ(json_number(stage_ / "run/summary.json", "steps"), 6);
}

TEST_F(Output, ThatWasLostIsNotInTheReport) {
  checked(run_with(">/dev/full", tandem_command(small_run("run"))));
  ASSERT_EQ(notes_of(stage_ / "run").size(), 1u);
  run_ok({"report", stage_ / "run"});
  const auto reports = numbers_of(stage_ / "run", "train", "loss").size();
  ASSERT_GT(reports, 0u);
  EXPECT_EQ(
      count_in_chart(
          charts_in(stage_.read("run/report.html")), "loss-samples", "points"),
      static_cast<int64_t>(reports));
}

TEST_F(Output, OfOtherCommandsMustBeWritten) {
  const std::vector<std::string> commands[] = {
      {"--help"}, {"version"}, {"train", "--help"}, {"plan", "--help"}, {"doctor"}};
  for (const auto& arguments : commands) {
    for (const char* streams : {">/dev/full", ">&-"}) {
      const auto result = run_with(streams, tandem_command(arguments));
      EXPECT_EQ(result.status.code, 1) << arguments.front() << streams;
      EXPECT_THAT(result.errors, HasSubstr("error: [app] cannot write the output: "));
    }
  }
}

TEST_F(Output, OfAComparisonIsItsTableOnly) {
  stage_.write("one.toml", "model = \"simplenet\"\nnproc = 1\n");
  stage_.write("three.toml", "model = \"simplenet\"\nnproc = 3\n");
  const auto result = run_without_reader(
      ">&4 2>&4",
      tandem_command(
          {"compare", stage_ / "one.toml", stage_ / "three.toml", "--data",
           stage_ / "data", "--epochs", "1", "--out", stage_ / "out"}),
      stage_ / "");
  EXPECT_EQ(result.status.code, 1);
  for (const char* run : {"out/one", "out/three"}) {
    EXPECT_EQ(hash_of(stage_ / run).size(), 64u) << run;
    EXPECT_THAT(notes_of(stage_ / run), IsEmpty()) << run;
  }
  EXPECT_TRUE(file_exists(stage_ / "out/report.html"));
}

// --- programs of users ---

TEST_F(Output, OfRanksIsReadIfTheLaunchersOutputIsClosed) {
  // Far more than a pipe holds.
  const auto command = tandem_command(
      {"launch", "--nproc", "3", "sh", "-c",
       "seq 50000; seq 50000 >&2; echo done > \"$0$RANK\"", stage_ / "rank"});
  const std::string streams[] = {
      ">&- 2>&-", ">/dev/full 2>/dev/full", ">&4 2>&4", "<&- >&- 2>&-"};
  for (const auto& where : streams) {
    EXPECT_TRUE(run_without_reader(where, command, stage_ / "").status.ok()) << where;
    for (const char* rank : {"rank0", "rank1", "rank2"}) {
      EXPECT_EQ(stage_.read(rank), "done\n") << where;
      remove_all(stage_ / rank);
    }
  }
}

// The files of descriptors 0, 1 and 2 of a rank, as the rank itself reported them.
std::string descriptors_in(const std::string& path) {
  std::string found;
  for (const auto& line : sorted_lines(read_file(path))) {
    found += line.substr(0, line.find('[')) + " ";
  }
  return found;
}

TEST_F(Output, OfLaunchedRanksDoesNotReachOtherFiles) {
  const auto command = tandem_command(
      {"launch", "--nproc", "3", "sh", "-c",
       R"(for fd in 0 1 2; do at=$(readlink /proc/$$/fd/$fd); echo $at >>"$0$RANK"; done)",
       stage_ / "rank"});
  for (const int closed : {1, 3, 5, 7}) {
    const auto result = run_with(closing(closed), command);
    EXPECT_TRUE(result.status.ok()) << closing(closed) << result.errors;
    for (const char* rank : {"rank0", "rank1", "rank2"}) {
      EXPECT_EQ(descriptors_in(stage_ / rank), "/dev/null pipe: pipe: ");
      remove_all(stage_ / rank);
    }
  }
}

TEST_F(Output, DoesNotChangeSignalsOfLaunchedPrograms) {
  const std::vector<std::string> look = {
      "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"};
  const auto command = tandem_command(with({"launch", "--nproc", "1"}, look));
  std::string expected;
  for (const auto& line : sorted_lines(run_command(look).output)) {
    expected += "[rank 0] " + line + "\n";
  }
  EXPECT_EQ(run_command(command).output, expected);
}

TEST_F(Output, OfSpawnedRanksDoesNotReachSharedFiles) {
  for (const int closed : {2, 5, 7}) {
    const auto result = run_with(
        closing(closed), {program("spawn_helper"), "prints"}, "",
        {{"SUMS", stage_ / "rank"}});
    EXPECT_TRUE(result.status.ok()) << closing(closed) << result.errors;
    for (const char* rank : {"rank0", "rank1", "rank2"}) {
      EXPECT_EQ(stage_.read(rank), "30000.000000\n") << closing(closed);
      remove_all(stage_ / rank);
    }
  }
}

TEST_F(Output, OfUsersProgramsDoesNotReachTheirRunOrEndIt) {
  stage_.write(
      "run.toml", "data = \"" + stage_ / "data" + "\"\nlog_every = 1\nepochs = 3\n" +
                      "batch_size = 16\nout = \"" + stage_ / "run" + "\"\n");
  const Arguments command = {program("custom_model"), stage_ / "run.toml"};
  const auto expect_run = [&](const std::string& note) {
    EXPECT_THAT(notes_of(stage_ / "run"), ElementsAre("standard output: " + note));
    EXPECT_EQ(json_number(stage_ / "run/summary.json", "steps"), 12);
    remove_all(stage_ / "run");
  };
  for (const int closed : {2, 7}) {
    const auto result = run_with(closing(closed), command);
    EXPECT_TRUE(result.status.ok()) << closing(closed) << result.errors;
    expect_run("Bad file descriptor");
  }
  // The output of the program itself after the run may end it.
  run_without_reader(">&4", command, stage_ / "");
  expect_run("Broken pipe");
}

TEST_F(Output, OfExamplesMayBeClosed) {
  const std::vector<std::string> programs[] = {
      {program("hello_ranks")}, {program("own_loop"), "1", "256"}};
  for (const auto& example : programs) {
    const auto command = tandem_command(with({"launch", "--nproc", "3"}, example));
    const auto closed = run_with("<&- >&- 2>&-", command);
    EXPECT_TRUE(closed.status.ok()) << example[0] << closed.errors;
    const auto read = run_with("<&- 2>&-", command);
    EXPECT_TRUE(read.status.ok()) << example[0] << read.errors;
    EXPECT_THAT(sorted_lines(read.output), SizeIs(example.size() == 1 ? 4 : 6));
  }
}

}  // namespace tandem::closed_output_test
