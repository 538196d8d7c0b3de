#include "tandem/checkpoint/run_directory.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <fmt/chrono.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/checkpoint/network_file.h"
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
  std::istringstream words(cpu_field("flags"));
  const std::set<std::string> flags(std::istream_iterator<std::string>(words), {});
  std::vector<std::string> found;
  for (const char* name :
       {"avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16",
        "amx_int8"}) {
    if (flags.count(name) > 0) {
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
  json["started"] =
      fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
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
  for (const char* name :
       {"config.toml", "environment.json", "metrics.jsonl", "summary.json",
        "network.pt2", "network.pt"}) {
    remove_unfinished(path_ + "/" + name);
  }
  // First, because a resumed run's config.toml decides which file is the network.
  if (config.model.kind == ModelKind::file) {
    keep_network_file(config, path_, append);
  }
  replace_file(path_ + "/config.toml", to_toml(config));
  replace_file(path_ + "/environment.json", environment_json());
  open_metrics(append ? O_APPEND : O_TRUNC);
}

RunDirectory::~RunDirectory() {
  if (metrics_fd_ >= 0) {
    close(metrics_fd_);
  }
}

void RunDirectory::open_metrics(int mode) {
  const std::string path = path_ + "/metrics.jsonl";
  metrics_fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | mode, 0666);
  if (metrics_fd_ < 0) {
    throw DataError(
        "[files] cannot write '" + path + "': " + std::strerror(errno) +
        "; choose another --out");
  }
}

void RunDirectory::forget_after(int64_t step) {
  if (metrics_fd_ < 0) {
    return;
  }
  const std::string path = path_ + "/metrics.jsonl";
  std::istringstream lines(read_file(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    // A killed run may have left half a line.
    const auto json = ordered_json::parse(line, nullptr, false);
    const bool known =
        json.is_object() && json.contains("step") && json["step"].is_number_integer();
    if (known && json["step"].get<int64_t>() <= step) {
      kept += line + "\n";
    }
  }
  replace_file(path, kept);
  close(std::exchange(metrics_fd_, -1));
  open_metrics(O_APPEND);
}

void RunDirectory::append_line(const std::string& line) {
  if (metrics_fd_ >= 0) {
    const off_t before = lseek(metrics_fd_, 0, SEEK_END);
    try {
      write_all(metrics_fd_, line.data(), line.size(), path_ + "/metrics.jsonl");
    } catch (const DataError&) {
      // Removes a partial line, which may be written if the disk is full. Readers
      // expect whole lines.
      [[maybe_unused]] const int cut = ftruncate(metrics_fd_, before);
      throw;
    }
  }
}

void RunDirectory::add(const TrainReport& report) {
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["kind"] = "train";
  json["epoch"] = report.epoch + 1;
  json["step"] = report.step;
  json["samples"] = report.samples;
  json["loss"] = report.loss;
  json[train_key(*report.metric)] = report.metric_value;
  json["lr"] = report.lr;
  json["samples_per_second"] = report.samples_per_second;
  json["train_seconds"] = report.train_seconds;
  append_line(json.dump() + "\n");
  step_ = report.step;
}

void RunDirectory::add(const TestReport& report) {
  ordered_json json;
  json["format_version"] = kFormatVersion;
  const std::string part = name_of(report.part);
  json["kind"] = part;
  json["epoch"] = report.epoch + 1;
  json["step"] = report.step;
  json["samples"] = report.samples;
  json["train_seconds"] = report.train_seconds;
  json[part + "_loss"] = report.loss;
  json[part + "_" + report.metric->key] = report.metric_value;
  append_line(json.dump() + "\n");
  step_ = report.step;
}

void RunDirectory::note_lost_output(const std::string& where_and_why) {
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["kind"] = "lost_output";
  json["step"] = step_;
  json["where"] = where_and_why;
  append_line(json.dump() + "\n");
}

void RunDirectory::finish(const Summary& summary, const RunConfig& config) {
  if (path_.empty()) {
    return;
  }
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["name"] = config.name;
  json[test_key(*summary.test.metric)] = summary.test.metric_value;
  json["test_loss"] = summary.test.loss;
  json[train_key(*summary.test.metric)] = summary.train_metric_value;
  json["train_seconds"] = summary.train_seconds;
  json["program_seconds"] = summary.program_seconds;
  json["samples_per_second"] = summary.samples_per_second;
  json["world_size"] = summary.world_size;
  json["epochs"] = summary.epochs;
  json["steps"] = summary.steps;
  json["ended_by"] = summary.ended_by;
  if (summary.best_test_step >= 0) {
    const std::string best = summary.has_validation ? "best_validation" : "best_test";
    json[best + "_loss"] = summary.best_test_loss;
    json[best + "_step"] = summary.best_test_step;
  }
  json["data"] = config.data.source;
  json["model"] = config.model.model();
  json["strategy"] = name_of(config.strategy.kind);
  json["sync"] = name_of(config.strategy.sync);
  json["ranks"] = name_of(config.ranks.kind);
  json["backend"] = summary.backend;
  json["executor"] = name_of(summary.executor);
  json["optimizer_state"] = summary.optimizer_state == OptimizerState::automatic
                                ? ""
                                : name_of(summary.optimizer_state);
  json["precision"] = name_of(config.exec.precision);
  json["loss_scale"] = summary.loss_scale;
  json["skipped_steps"] = summary.skipped_steps;
  json["exposed_comm_ms_per_step"] = summary.exposed_comm_ms_per_step;
  for (const auto& [name, values] : summary.measurements) {
    json[name] = values;
  }
  json["gradient_bytes"] = summary.gradient_bytes;
  json["bytes_sent_per_rank"] = summary.bytes_sent_per_rank;
  json["peak_memory_mib"] = summary.peak_memory_mib;
  if (summary.peak_device_memory_mib) {
    json["peak_device_memory_mib"] = *summary.peak_device_memory_mib;
  }
  json["mean_save_pause_ms"] = summary.mean_save_pause_ms;
  json["longest_save_pause_ms"] = summary.longest_save_pause_ms;
  json["parameters_sha256"] = summary.parameters_sha256;
  replace_file(path_ + "/summary.json", json.dump(2) + "\n");
}

std::string RunDirectory::checkpoints() const {
  return path_.empty() ? "" : path_ + "/checkpoints";
}

}  // namespace tandem
