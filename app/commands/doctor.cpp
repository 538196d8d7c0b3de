#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>

#include "app/command_line.h"
#include "tandem/base/files.h"
#include "tandem/base/host.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/data/named_datasets.h"

namespace tandem::app {

namespace {

// Prints `text` as a good result or as a warning. A warning also contains the fix.
void finding(bool good, const std::string& text, const std::string& fix = "") {
  fmt::print(
      "{:<8} {}{}\n", good ? "ok" : "warning:", text,
      good ? "" : "\n         fix: " + fix);
}

// Returns the text with the exit status of a process added, unless the process
// succeeded.
std::string with_ending(const std::string& text, const ExitStatus& status) {
  return status.ok() ? text : text + " " + status.describe();
}

void look_at_cpu() {
  const std::string flags = " " + cpu_field("flags") + " ";
  std::string sets;
  for (const char* set : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (flags.find(" " + std::string(set) + " ") != std::string::npos) {
      sets += " " + std::string(set);
    }
  }
  finding(
      !sets.empty(),
      fmt::format(
          "CPU: {}, {} usable, instruction sets:{}", cpu_field("model name"),
          usable_cpus(), sets.empty() ? " none of avx2 and later" : sets),
      "none for this CPU; tandem runs slowly");
}

void look_at_memory() {
  struct statvfs shm {};
  const bool known = statvfs("/dev/shm", &shm) == 0;
  const double gib = known ? static_cast<double>(shm.f_bavail) *
                                 static_cast<double>(shm.f_frsize) / (1 << 30)
                           : 0;
  finding(
      gib > 0.25, fmt::format("shared memory: {:.1f} GiB free in /dev/shm", gib),
      "mount -o remount,size=2G /dev/shm");
}

void look_at_blas() {
  char path[PATH_MAX];
  const char* link = "/usr/lib/x86_64-linux-gnu/libblas.so.3";
  if (realpath(link, path) == nullptr) {
    return;
  }
  const std::string file = path;
  finding(
      file.find("openblas") != std::string::npos ||
          file.find("mkl") != std::string::npos,
      "BLAS for LibTorch: " + file, "apt-get install libopenblas0-pthread");
}

void look_at_data() {
  const std::string folder = find_dataset("mnist");
  finding(
      !folder.empty(),
      folder.empty() ? "data: no MNIST (--data digits needs no files)"
                     : "data: MNIST in " + folder,
      "tandem data fetch mnist, or export TANDEM_DATA=FOLDER with its four IDX files");
}

CommandResult worker_doctor(const std::string& worker, const Arguments& arguments) {
  std::vector<std::string> command = {worker, "doctor"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(command, {{"GLOG_minloglevel", "2"}}, 60);
}

void look_at_worker() {
  std::string worker;
  try {
    worker = worker_path();
  } catch (const DataError& error) {
    finding(false, error.what(), "cmake --build --preset release");
    return;
  }
  const auto environment = worker_doctor(worker, {});
  finding(
      environment.status.ok(), with_ending("worker: " + worker, environment.status),
      "apt-get install libtorch-dev libgloo-dev");
  std::string text = "\nenvironment:\n" + environment.output;
  const std::string cuda = cuda_library_path();
  if (cuda.empty()) {
    finding(true, "GPUs: none, this build computes on CPUs only");
  } else {
    const auto devices = worker_doctor(worker, {"devices"});
    finding(
        devices.status.ok(), with_ending("CUDA: " + cuda, devices.status),
        "install the CUDA libraries that LibTorch needs");
    text += "\ndevices:\n" + devices.output;
  }
  fmt::print("\nbackends:\n{}{}", worker_doctor(worker, {"backends"}).output, text);
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  CLI::App app(
      "Checks what this build and this machine can do, and prints how to fix problems.",
      "tandem doctor");
  parse(app, arguments);
  fmt::print("tandem {}\n", TANDEM_VERSION);
  look_at_cpu();
  look_at_memory();
  look_at_blas();
  look_at_data();
  check_output();
  look_at_worker();
  return 0;
}

}  // namespace tandem::app
