#include "tandem/launch/logs/log_directory.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"

namespace tandem {

namespace {

bool has_log_files(const LogOptions& options) {
  bool any = false;
  for (const auto* streams : {&options.redirected, &options.teed}) {
    any = any || streams->any(&StreamChoice::output) ||
          streams->any(&StreamChoice::errors);
  }
  return any;
}

// Creates a directory and its parents. Does not flush them to disk as
// make_directories() does, because that would delay the start of ranks.
void make_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    errno = error.value();
    fail_on_file("make the directory", path);
  }
}

std::string make_run_directory(const std::string& base, const std::string& run) {
  std::string name = run.empty() ? "none" : run;
  std::replace(name.begin(), name.end(), '/', '_');
  std::string path = base + "/" + name + "_XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    fail_on_file("make the directory", path);
  }
  return path;
}

std::shared_ptr<FilteredFile> make_filtered(
    const std::vector<std::string>& texts, const std::string& path) {
  return texts.empty()
             ? nullptr
             : std::shared_ptr<FilteredFile>(new FilteredFile{texts, LogFile(path)});
}

// Returns the destinations of a stream with a path, given whether the options select
// the stream.
StreamOptions destinations(
    const std::string& path, bool redirected, bool teed, bool shown,
    const std::shared_ptr<FilteredFile>& filtered) {
  StreamOptions stream;
  stream.on_console = shown && (teed || !redirected);
  if (redirected || teed) {
    stream.file = std::make_shared<LogFile>(path);
  }
  if (teed) {
    stream.filtered = filtered;
  }
  return stream;
}

}  // namespace

LogDirectory::LogDirectory(LogOptions options, const std::string& run)
    : options_(std::move(options)), temporary_(options_.directory.empty()) {
  if (temporary_) {
    base_ = make_private_directory();
  } else {
    // A rank may change its directory before it writes its error file.
    base_ = std::filesystem::absolute(options_.directory);
    make_directory(base_);
  }
  run_ = make_run_directory(base_, run);
  if (temporary_ && has_log_files(options_)) {
    log_info("[launch] the log files are in " + run_);
    keep();
  }
}

LogDirectory::~LogDirectory() {
  if (temporary_) {
    remove_all(base_);
  }
}

void LogDirectory::begin_attempt(int number, int nproc) {
  attempt_ = run_ + "/attempt_" + std::to_string(number);
  remove_all(attempt_);
  for (int local_rank = 0; local_rank < nproc; ++local_rank) {
    make_directory(directory_of(local_rank));
  }
  filtered_output_ =
      make_filtered(options_.output_filters, attempt_ + "/filtered_stdout.log");
  filtered_errors_ =
      make_filtered(options_.error_filters, attempt_ + "/filtered_stderr.log");
}

StreamOptions LogDirectory::output_of(int local_rank) const {
  return destinations(
      directory_of(local_rank) + "/stdout.log",
      options_.redirected.at(local_rank).output, options_.teed.at(local_rank).output,
      is_shown(local_rank), filtered_output_);
}

StreamOptions LogDirectory::errors_of(int local_rank) const {
  return destinations(
      directory_of(local_rank) + "/stderr.log",
      options_.redirected.at(local_rank).errors, options_.teed.at(local_rank).errors,
      is_shown(local_rank), filtered_errors_);
}

std::string LogDirectory::error_file(int local_rank) const {
  return directory_of(local_rank) + "/error.json";
}

std::string LogDirectory::directory_of(int local_rank) const {
  return attempt_ + "/" + std::to_string(local_rank);
}

bool LogDirectory::is_shown(int local_rank) const {
  return options_.shown.empty() || options_.shown.count(local_rank) > 0;
}

}  // namespace tandem
