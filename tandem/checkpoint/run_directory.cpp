#include "tandem/checkpoint/run_directory.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/core/torch_compat.h"
#include "tandem/launch/restarts.h"

namespace tandem {

namespace {

using nlohmann::ordered_json;

constexpr int kFormatVersion = 1;

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

// Returns the numbers in a line of metrics.jsonl. The name of "test_loss" in a line of
// kind "test" is "test/loss".
Scalars scalars_of(const ordered_json& line) {
  const std::string kind = line.at("kind");
  Scalars scalars;
  for (const auto& [key, value] : line.items()) {
    if (value.is_number() && key != "format_version" && key != "step") {
      const bool has_kind = key.rfind(kind + "_", 0) == 0;
      const std::string name = has_kind ? key.substr(kind.size() + 1) : key;
      scalars.emplace_back(kind + "/" + name, value.get<double>());
    }
  }
  return scalars;
}

// Returns the lines of a metrics.jsonl up to `step`. A resumed run writes the lines of
// later steps again.
std::string lines_until(int64_t step, const std::string& metrics) {
  std::istringstream lines(metrics);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    // The last line of a killed run may be incomplete.
    const auto json = ordered_json::parse(line, nullptr, false);
    const bool known =
        json.is_object() && json.contains("step") && json["step"].is_number_integer();
    if (known && json["step"].get<int64_t>() <= step) {
      kept += line + "\n";
    }
  }
  return kept;
}

constexpr const char* kOwnFiles[] = {"config.toml",   "environment.json",
                                     "metrics.jsonl", "summary.json",
                                     "network.pt2",   "network.pt"};
constexpr const char* kOwnFolders[] = {"checkpoints", "tensorboard", "trace"};

const char* kind_of_entry(mode_t mode) {
  return S_ISLNK(mode)   ? "a symbolic link"
         : S_ISDIR(mode) ? "a folder"
         : S_ISREG(mode) ? "a regular file"
                         : "a special file";
}

void check_entry(const std::string& path, mode_t wanted) {
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && (info.st_mode & S_IFMT) != wanted) {
    throw ConfigError(fmt::format(
        "[train] '{}' is {}, expected {}; remove it, or choose another --out", path,
        kind_of_entry(info.st_mode), kind_of_entry(wanted)));
  }
}

constexpr std::chrono::milliseconds kBetweenTries(50);
constexpr int kTries = 40;

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
    const std::string& path, const RunConfig& config,
    std::optional<int64_t> resumed_step, const RunLock* lock)
    : path_(path), lock_(lock), step_(resumed_step.value_or(0)) {
  if (path_.empty()) {
    return;
  }
  if (lock_ == nullptr) {
    make_directories(path_);
  }
  check_lock();
  for (const char* name : kOwnFiles) {
    remove_unfinished(path_ + "/" + name);
  }
  // Called before config.toml is replaced, because the config.toml of a resumed run
  // determines the network file.
  if (config.model.kind == ModelKind::file) {
    keep_network_file(config, path_);
  }
  replace_file(path_ + "/config.toml", to_toml(config));
  replace_file(path_ + "/environment.json", environment_json());
  const std::string metrics = path_ + "/metrics.jsonl";
  if (resumed_step && file_exists(metrics)) {
    replace_file(metrics, lines_until(*resumed_step, read_file(metrics)));
  }
  if (!resumed_step) {
    // O_TRUNC alone would empty a file that has another name elsewhere.
    remove_all(metrics);
  }
  metrics_.emplace(metrics, O_NOFOLLOW | (resumed_step ? O_APPEND : O_TRUNC));
  if (config.output.tensorboard) {
    write_events([&] {
      events_.emplace(path_ + "/tensorboard", resumed_step ? *resumed_step + 1 : 0);
    });
  }
}

void RunDirectory::check_lock() const {
  if (lock_ != nullptr) {
    lock_->check();
  }
}

void RunDirectory::append(const std::string& line) {
  if (metrics_) {
    check_lock();
    if (metrics_->is_lost()) {
      throw DataError(
          "[train] '" + path_ +
          "/metrics.jsonl' was removed or replaced during the run, expected the run's "
          "own file; leave it in place, and continue with --resume auto");
    }
    metrics_->append(line + "\n");
  }
}

void RunDirectory::add_line(
    const std::string& line, int64_t step, const Scalars& scalars) {
  append(line);
  step_ = step;
  if (events_) {
    write_events([&] { events_->add(step, scalars); });
  }
}

void RunDirectory::write_events(const std::function<void()>& write) {
  try {
    write();
  } catch (const DataError& error) {
    events_.reset();
    note_lost_output(error.what());
    log_warning(
        std::string("[train] the run continues without TensorBoard's file: ") +
        error.what());
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
  // JSON has no NaN and no infinity.
  if (report.gradient_norm && std::isfinite(*report.gradient_norm)) {
    json["gradient_norm"] = *report.gradient_norm;
  }
  json["samples_per_second"] = report.samples_per_second;
  json["exposed_comm_ms_per_step"] = report.exposed_comm_ms_per_step;
  json["process_peak_memory_mib"] = report.process_peak_memory_mib;
  json["train_seconds"] = report.train_seconds;
  add_line(json.dump(), report.step, scalars_of(json));
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
  add_line(json.dump(), report.step, scalars_of(json));
}

void RunDirectory::note_resume(
    const Position& position, int64_t samples, double train_seconds) {
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["kind"] = "resume";
  json["epoch"] = position.epoch + 1;
  json["step"] = position.step;
  json["samples"] = samples;
  json["train_seconds"] = train_seconds;
  append(json.dump());
}

void RunDirectory::note_lost_output(const std::string& where_and_why) {
  ordered_json json;
  json["format_version"] = kFormatVersion;
  json["kind"] = "lost_output";
  json["step"] = step_;
  json["where"] = where_and_why;
  append(json.dump());
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
  if (restart_count() > 0) {
    json["restarts"] = restart_count();
    json["restart_causes"] = restart_causes();
  }
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
  json["shard"] = summary.shard == Sharding::automatic ? "" : name_of(summary.shard);
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
  json["recorded_steps"] = summary.recorded_steps;
  json["recording_seconds"] = summary.recording_seconds;
  json["parameters_sha256"] = summary.parameters_sha256;
  check_lock();
  replace_file(path_ + "/summary.json", json.dump(2) + "\n");
}

std::string RunDirectory::checkpoints() const {
  return path_.empty() ? "" : path_ + "/checkpoints";
}

RunLock::RunLock(const std::string& directory)
    : folder_(directory), lock_(directory + "/run.lock") {
  folder_.hold();
  for (int i = 0; i < kTries; ++i) {
    switch (lock_.try_lock()) {
      case FileLock::Result::locked:
      case FileLock::Result::no_file:
        return;
      case FileLock::Result::no_locks:
        log_warning(
            "[train] '" + lock_.path() + "' cannot be locked: " + std::strerror(errno) +
            "; check that no other run writes there");
        return;
      case FileLock::Result::taken:
        break;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  throw ConfigError(
      "[train] another run writes to '" + directory + "': " + lock_.holder() +
      "; wait for its end, stop it, or choose another --out");
}

void RunLock::check() const {
  folder_.check();
  if (lock_.is_lost()) {
    fail_folder_lost(folder_.path(), "lost its run.lock");
  }
}

void check_own_directory(const std::string& directory) {
  const std::string path = directory.substr(0, directory.find_last_not_of('/') + 1);
  struct stat info {};
  if (path.empty() || lstat(path.c_str(), &info) != 0) {
    return;
  }
  if (S_ISLNK(info.st_mode)) {
    throw ConfigError(
        "[train] '" + path +
        "' is a symbolic link, expected a folder; set --out to the folder to which it "
        "points");
  }
  if (info.st_uid != geteuid()) {
    throw ConfigError(fmt::format(
        "[train] '{}' belongs to user {}, expected user {}; set --out to your own "
        "folder",
        path, info.st_uid, geteuid()));
  }
}

void check_own_entries(const std::string& directory) {
  check_entry(directory + "/run.lock", S_IFREG);
  for (const char* name : kOwnFiles) {
    check_entry(directory + "/" + name, S_IFREG);
  }
  for (const char* name : kOwnFolders) {
    check_entry(directory + "/" + name, S_IFDIR);
  }
}

}  // namespace tandem
