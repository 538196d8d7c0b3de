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

std::vector<std::string> into(const std::string& out, const Arguments& more = {}) {
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
        bad_input(
            "OfAnEarlierRunForThreeRanks", into("@/run", {"--nproc", "3"}), 2,
            {"@/run", "earlier run", "--resume auto"}, &with_run),
        bad_input(
            "IsAFileForFourRanks", into("@/file", {"--nproc", "4"}), 1,
            {"@/file", "another path"}, &with_file),
        bad_input(
            "UnderAFile", into("@/file/run"), 1, {"@/file/run", "another path"},
            &with_file),
        in_shell(
            kBound, bad_input(
                        "MayNotBeWritten", into("@/locked"), 1,
                        {"@/locked/config.toml", "Permission denied", "may use"},
                        data_and([](const Stage& stage) {
                          fs::create_directory(stage / "locked");
                          fs::permissions(
                              stage / "locked",
                              fs::perms::owner_read | fs::perms::owner_exec);
                        }))),
        bad_input(
            "DanglingLink", into("@/link"), 2, {"'@/link' is a symbolic link", "--out"},
            data_and([](const Stage& stage) {
              fs::create_symlink("gone", stage / "link");
            })),
        bad_input(
            "IsALinkForThreeRanks", into("@/link/", {"--nproc", "3"}), 2,
            {"'@/link' is a symbolic link", "--out"}, data_and([](const Stage& stage) {
              fs::create_directory(stage / "other");
              fs::create_directory_symlink("other", stage / "link");
            })),
        bad_input(
            "BelongsToAnotherUser", into(somebody_elses()), 2,
            {"' belongs to user ", "your own folder"}, &with_a_folder_of_somebody_else),
        bad_input("InProc", into("/proc/run"), 1, {"/proc/run"}, &with_data),
        bad_input(
            "InSysForFourRanks", into("/sys/run", {"--nproc", "4"}), 1, {"/sys/run"},
            &with_data),
        on_disk(
            "ro",
            bad_input(
                "OnAReadOnlyDiskForThreeRanks", into("@/disk/run", {"--nproc", "3"}), 1,
                {"@/disk/run", "Read-only", "may use"}, &with_data))),
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
        in_shell(
            "ulimit -n 20; exec \"$@\"",
            bad_input(
                "OpenFilesOfManyRanks", train({"--nproc", "4", "--backend", "gloo"}), 2,
                {"may open 20 files, but 4 ranks", "raise ulimit -n"}, &with_data)),
        // With Gloo, because shared memory is a file too.
        in_shell(
            "ulimit -f 32; exec \"$@\"",
            bad_input(
                "SizeOfAFileOfThreeRanks",
                into("@/run", {"--nproc", "3", "--backend", "gloo"}), 1,
                {"@/run/checkpoints/", "File too large", "raise ulimit -f"},
                &with_data)),
        // The thread that writes checkpoints receives no signals.
        in_shell(
            "ulimit -f 32; exec \"$@\"",
            bad_input(
                "SizeOfAFileOfData",
                {"data", "make", "digits", "--train", "64", "--test", "64", "--out",
                 "@/out"},
                1, {"@/out", "File too large", "raise ulimit -f"}))),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    FullDisk, BadInput,
    testing::Values(
        on_disk(
            "size=4k",
            bad_input(
                "AtTheStart", into("@/disk/run"), 1,
                {"@/disk/run/", "No space left", "free some space"}, &with_data)),
        on_disk(
            "size=64k",
            bad_input(
                "AtTheFirstCheckpointForThreeRanks",
                into("@/disk/run", {"--nproc", "3"}), 1,
                {"@/disk/run/checkpoints/", ".safetensors", "No space left"},
                &with_data)),
        on_disk(
            "size=160k",
            and_then(
                &evaluate_first_checkpoint,
                bad_input(
                    "AtALaterCheckpoint", into("@/disk/run", {"--epochs", "6"}), 1,
                    {"@/disk/run/checkpoints/", ".safetensors", "No space left"},
                    &with_data))),
        on_disk(
            "size=16k",
            and_then(
                &expect_whole_lines,
                bad_input(
                    "InTheMetrics",
                    into("@/disk/run", {"--batch-size", "1", "--log-every", "1"}), 1,
                    {"@/disk/run/metrics.jsonl", "No space left"}, &with_data)))),
    name_of_case);

}  // namespace tandem::output_test
