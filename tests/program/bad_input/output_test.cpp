// Places that cannot be written, and full disks.

#include <unistd.h>

#include "bad_input.h"

namespace tandem::output_test {

namespace fs = std::filesystem;

void with_file(const Stage& stage) {
  stage.data("data");
  stage.write("file", "x");
}

void with_run(const Stage& stage) {
  stage.data("data");
  stage.finished_run("run");
}

std::vector<std::string> into(
    const std::string& out, const std::vector<std::string>& more = {}) {
  return with(train({"--out", out}), more);
}

// Root can make a folder of another user; other users can use existing ones.
std::string somebody_elses() {
  return geteuid() == 0 ? "@/theirs" : "/usr";
}

void with_a_folder_of_somebody_else(const Stage& stage) {
  stage.data("data");
  fs::create_directory(stage / "theirs");
  if (geteuid() == 0) {
    EXPECT_EQ(chown((stage / "theirs").c_str(), 12345, 12345), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Output, BadInput,
    testing::Values(
        BadInputCase{
            "OfAnEarlierRun",
            into("@/run"),
            2,
            {"@/run", "earlier run", "--resume auto"},
            &with_run},
        BadInputCase{
            "OfAnEarlierRunForThreeRanks",
            into("@/run", {"--nproc", "3"}),
            2,
            {"@/run", "earlier run", "--resume auto"},
            &with_run},
        BadInputCase{
            "IsAFile", into("@/file"), 1, {"@/file", "another path"}, &with_file},
        BadInputCase{
            "IsAFileForFourRanks",
            into("@/file", {"--nproc", "4"}),
            1,
            {"@/file", "another path"},
            &with_file},
        BadInputCase{
            "UnderAFile",
            into("@/file/run"),
            1,
            {"@/file/run", "another path"},
            &with_file},
        BadInputCase{
            "MayNotBeWritten",
            into("@/locked"),
            1,
            {"@/locked/config.toml", "Permission denied", "may use"},
            data_and([](const Stage& stage) {
              fs::create_directory(stage / "locked");
              fs::permissions(
                  stage / "locked", fs::perms::owner_read | fs::perms::owner_exec);
            }),
            {},
            kBound},
        BadInputCase{
            "DanglingLink",
            into("@/link"),
            2,
            {"'@/link' is a symbolic link", "--out"},
            data_and([](const Stage& stage) {
              fs::create_symlink("gone", stage / "link");
            })},
        BadInputCase{
            "IsALinkForThreeRanks",
            into("@/link/", {"--nproc", "3"}),
            2,
            {"'@/link' is a symbolic link", "--out"},
            data_and([](const Stage& stage) {
              fs::create_directory(stage / "other");
              fs::create_directory_symlink("other", stage / "link");
            })},
        BadInputCase{
            "BelongsToAnotherUser",
            into(somebody_elses()),
            2,
            {"' belongs to user ", "your own folder"},
            &with_a_folder_of_somebody_else},
        BadInputCase{"InProc", into("/proc/run"), 1, {"/proc/run"}, &with_data},
        BadInputCase{
            "InSysForFourRanks",
            into("/sys/run", {"--nproc", "4"}),
            1,
            {"/sys/run"},
            &with_data},
        BadInputCase{
            "OnAReadOnlyDisk",
            into("@/disk/run"),
            1,
            {"@/disk/run", "Read-only", "may use"},
            &with_data,
            {},
            {},
            "ro"},
        BadInputCase{
            "OnAReadOnlyDiskForThreeRanks",
            into("@/disk/run", {"--nproc", "3"}),
            1,
            {"@/disk/run", "Read-only", "may use"},
            &with_data,
            {},
            {},
            "ro"}),
    name_of_case);

// The checkpoint that was complete before the disk was full is valid.
void evaluate_first_checkpoint(const Stage& stage) {
  run_ok({"eval", "--checkpoint", stage / "disk.after/run/checkpoints/step-00000001"});
}

void expect_whole_lines(const Stage& stage) {
  const std::string lines = stage.read("disk.after/run/metrics.jsonl");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back(), '\n');
  EXPECT_EQ(lines[lines.rfind('\n', lines.size() - 2) + 1], '{');
}

INSTANTIATE_TEST_SUITE_P(
    Limits, BadInput,
    testing::Values(
        BadInputCase{
            "OpenFiles",
            train({"--nproc", "2"}),
            2,
            {"[launch] this process may open 12 files, but 2 ranks", "raise ulimit -n"},
            &with_data,
            {},
            "ulimit -n 12; exec \"$@\""},
        BadInputCase{
            "OpenFilesOfManyRanks",
            train({"--nproc", "4", "--backend", "gloo"}),
            2,
            {"may open 20 files, but 4 ranks", "raise ulimit -n"},
            &with_data,
            {},
            "ulimit -n 20; exec \"$@\""},
        BadInputCase{
            "SizeOfAFile",
            into("@/run"),
            1,
            {"@/run/checkpoints/", "File too large", "raise ulimit -f"},
            &with_data,
            {},
            "ulimit -f 32; exec \"$@\""},
        BadInputCase{
            "SizeOfAFileOfThreeRanks",
            // Shared memory is a file too.
            into("@/run", {"--nproc", "3", "--backend", "gloo"}),
            1,
            {"@/run/checkpoints/", "File too large", "raise ulimit -f"},
            &with_data,
            {},
            "ulimit -f 32; exec \"$@\""},
        // The thread that writes checkpoints receives no signals.
        BadInputCase{
            "SizeOfAFileOfData",
            {"data", "make", "digits", "--train", "64", "--test", "64", "--out",
             "@/out"},
            1,
            {"@/out", "File too large", "raise ulimit -f"},
            {},
            {},
            "ulimit -f 32; exec \"$@\""}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    FullDisk, BadInput,
    testing::Values(
        BadInputCase{
            "AtTheStart",
            into("@/disk/run"),
            1,
            {"@/disk/run/", "No space left", "free some space"},
            &with_data,
            {},
            {},
            "size=4k"},
        BadInputCase{
            "AtTheFirstCheckpoint",
            into("@/disk/run"),
            1,
            {"@/disk/run/checkpoints/", ".safetensors", "No space left"},
            &with_data,
            {},
            {},
            "size=64k"},
        BadInputCase{
            "AtTheFirstCheckpointForThreeRanks",
            into("@/disk/run", {"--nproc", "3"}),
            1,
            {"@/disk/run/checkpoints/", ".safetensors", "No space left"},
            &with_data,
            {},
            {},
            "size=64k"},
        BadInputCase{
            "AtALaterCheckpoint",
            into("@/disk/run", {"--epochs", "6"}),
            1,
            {"@/disk/run/checkpoints/", ".safetensors", "No space left"},
            &with_data,
            {},
            {},
            "size=160k",
            &evaluate_first_checkpoint},
        BadInputCase{
            "InTheMetrics",
            into("@/disk/run", {"--batch-size", "1", "--log-every", "1"}),
            1,
            {"@/disk/run/metrics.jsonl", "No space left"},
            &with_data,
            {},
            {},
            "size=16k",
            &expect_whole_lines}),
    name_of_case);

}  // namespace tandem::output_test
