#include "tandem/train/run_directory.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/core/torch_compat.h"

namespace tandem {

namespace {

using nlohmann::ordered_json;

constexpr int kFormatVersion = 1;

std::string cpu_field(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0) {
      return line.substr(std::min(line.size(), line.find(':') + 2));
    }
  }
  return "";
}

std::vector<std::string> instruction_sets() {
  const std::string flags = " " + cpu_field("flags") + " ";
  std::vector<std::string> found;
  for (const char* name :
       {"avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16",
        "amx_int8"}) {
    if (flags.find(" " + std::string(name) + " ") != std::string::npos) {
      found.emplace_back(name);
    }
  }
  return found;
}

}  // namespace

std::string environment_json() {
  utsname system{};
  uname(&system);
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["cpu"] = cpu_field("model name");
  json["instruction_sets"] = instruction_sets();
  json["usable_cpus"] = usable_cpus();
  json["memory_gib"] = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30);
  json["threads_per_rank"] = at::get_num_threads();
  json["host"] = system.nodename;
  json["system"] = std::string(system.sysname) + " " + system.release;
  json["libtorch"] = TORCH_VERSION;
  json["libtorch_config"] = at::show_config();
  json["compiler"] = __VERSION__;
  return json.dump(2) + "\n";
}

RunDirectory::RunDirectory(
    const std::string& path, const RunConfig& config, bool append)
    : path_(path) {
  if (path_.empty()) {
    return;
  }
  make_directories(path_);
  replace_file(path_ + "/config.toml", to_toml(config));
  replace_file(path_ + "/environment.json", environment_json());
  const std::string metrics = path_ + "/metrics.jsonl";
  const int mode = append ? O_APPEND : O_TRUNC;
  metrics_fd_ = open(metrics.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0644);
  if (metrics_fd_ < 0) {
    throw DataError("[files] cannot write '" + metrics + "'; choose another --out");
  }
}

RunDirectory::~RunDirectory() {
  if (metrics_fd_ >= 0) {
    close(metrics_fd_);
  }
}

void RunDirectory::append_line(const std::string& line) {
  if (metrics_fd_ >= 0) {
    write_all(metrics_fd_, line.data(), line.size(), path_ + "/metrics.jsonl");
  }
}

void RunDirectory::add(const TrainReport& report) {
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["kind"] = "train";
  json["epoch"] = report.epoch + 1;
  json["step"] = report.step;
  json["loss"] = report.loss;
  json["train_accuracy"] = report.train_accuracy;
  json["lr"] = report.lr;
  json["samples_per_second"] = report.samples_per_second;
  json["train_seconds"] = report.train_seconds;
  append_line(json.dump() + "\n");
}

void RunDirectory::add(const TestReport& report) {
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["kind"] = "test";
  json["epoch"] = report.epoch + 1;
  json["step"] = report.step;
  json["test_loss"] = report.loss;
  json["test_accuracy"] = report.accuracy();
  append_line(json.dump() + "\n");
}

void RunDirectory::finish(const Summary& summary, const RunConfig& config) {
  if (path_.empty()) {
    return;
  }
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["name"] = config.name;
  json["test_accuracy"] = summary.test.accuracy();
  json["test_loss"] = summary.test.loss;
  json["train_seconds"] = summary.train_seconds;
  json["samples_per_second"] = summary.samples_per_second;
  json["world_size"] = summary.world_size;
  json["epochs"] = summary.epochs;
  json["steps"] = summary.steps;
  json["model"] = config.model;
  json["strategy"] = config.strategy;
  json["sync"] = config.sync;
  json["ranks"] = config.ranks;
  json["backend"] = summary.backend;
  json["executor"] = summary.executor;
  json["precision"] = config.precision;
  json["exposed_comm_ms_per_step"] = summary.exposed_comm_ms_per_step;
  json["parameters_sha256"] = summary.parameters_sha256;
  replace_file(path_ + "/summary.json", json.dump(2) + "\n");
}

std::string RunDirectory::checkpoints() const {
  return path_.empty() ? "" : path_ + "/checkpoints";
}

}  // namespace tandem
