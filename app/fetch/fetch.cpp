#include "app/fetch/fetch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "app/fetch/download.h"
#include "app/fetch/progress.h"
#include "tandem/base/error.h"
#include "tandem/base/file_lock.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/sha256.h"
#include "tandem/base/signals.h"
#include "tandem/data/named_datasets.h"

namespace tandem::app {

namespace {

using Clock = std::chrono::steady_clock;
using RemoteFiles = std::vector<RemoteFile>;

constexpr auto kPollInterval = std::chrono::milliseconds(100);

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const auto size = entry.file_size(ignored);
    bytes += ignored ? 0 : static_cast<int64_t>(size);
  }
  return bytes;
}

// Locks a folder, so that only one process at a time downloads into it. The kernel
// releases the lock when the process ends. Creates the folder if it does not exist, and
// removes it at the end if it is empty.
class TargetFolder {
 public:
  // Waits while another process has the lock. Throws DataError if the folder does not
  // grow for `patience`.
  TargetFolder(const std::string& folder, std::chrono::seconds patience)
      : folder_(folder), lock_(std::in_place, folder + "/.fetch.lock") {
    auto last_growth = Clock::now();
    int64_t bytes = -1;
    while (!lock()) {
      if (bytes == -1) {
        say("waiting for another process that fetches into " + folder);
      }
      std::this_thread::sleep_for(kPollInterval);
      if (stop_signal() != 0) {
        throw DataError("[fetch] stopped while another process fetches into " + folder);
      }
      const int64_t before = std::exchange(bytes, bytes_in(folder));
      if (bytes != before) {
        last_growth = Clock::now();
      } else if (Clock::now() - last_growth > patience) {
        throw DataError(
            "[fetch] another process fetches into '" + folder +
            "', but no data has arrived for " + std::to_string(patience.count()) +
            " s; check that process, or choose another folder with --to");
      }
    }
  }
  ~TargetFolder() {
    lock_.reset();
    rmdir(folder_.c_str());
  }
  TargetFolder(const TargetFolder&) = delete;
  TargetFolder& operator=(const TargetFolder&) = delete;

 private:
  // Returns false if another process has the lock.
  bool lock() {
    make_directories(folder_);
    const auto result = lock_->try_lock();
    // The process that had the lock may have removed the empty folder in the meantime.
    if (result == FileLock::Result::no_file && errno != ENOENT) {
      throw DataError(
          "[fetch] cannot write into '" + folder_ + "': " + std::strerror(errno) +
          "; choose another folder with --to");
    }
    // A file system without locks does not prevent a download.
    return result == FileLock::Result::locked || result == FileLock::Result::no_locks;
  }

  const std::string folder_;
  std::optional<FileLock> lock_;
};

bool is_right(const std::string& folder, const RemoteFile& file) {
  const std::string path = folder + "/" + file.name;
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  return !missing && static_cast<int64_t>(size) == file.size &&
         sha256_of_file(path) == file.sha256;
}

RemoteFiles wrong_files(const RemoteSet& set, const std::string& folder) {
  RemoteFiles wrong;
  std::copy_if(
      set.files.begin(), set.files.end(), std::back_inserter(wrong),
      [&](const RemoteFile& file) { return !is_right(folder, file); });
  return wrong;
}

// Returns the folder for new files. $TANDEM_DATA is used only if it exists, because its
// name may be misspelled.
std::string target_folder(const RemoteSet& set, const FetchOptions& options) {
  if (!options.to.empty()) {
    return options.to;
  }
  const auto root = get_env("TANDEM_DATA").value_or("");
  if (!root.empty()) {
    const std::string folder = dataset_folders(set.name).front();
    const std::string& existing = file_exists(folder) ? folder : root;
    if (access((existing + "/.").c_str(), W_OK | X_OK) == 0) {
      return folder;
    }
    say("not into $TANDEM_DATA, " + root + ": " + std::strerror(errno));
  }
  return cache_directory() + "/" + set.name;
}

std::string names_of(const RemoteFiles& files) {
  std::vector<std::string> names;
  for (const auto& file : files) {
    names.push_back(file.name);
  }
  return join(names);
}

// Returns the advice for a failed download.
std::string remedy(const RemoteFiles& files, const std::string& folder) {
  return "put " + names_of(files) + " into '" + folder + "' and run this again";
}

std::string keep(const RemoteSet& set, const std::string& folder) {
  say(set.name + " is in " + folder + " already, with the right SHA-256: kept");
  return folder;
}

void say_what_is_there(
    const RemoteSet& set, const std::string& folder, const RemoteFiles& wrong) {
  for (const auto& file : set.files) {
    const auto same = [&](const RemoteFile& one) { return one.name == file.name; };
    if (std::none_of(wrong.begin(), wrong.end(), same)) {
      say(file.name + ": there already, with the right SHA-256: kept");
    } else if (file_exists(folder + "/" + file.name)) {
      say(file.name + ": there, but with other bytes: replaced");
    }
  }
}

void download_all(
    const RemoteSet& set, const RemoteFiles& files, const std::string& folder,
    int64_t stall_seconds) {
  auto urls = set.urls;
  for (auto file = files.begin(); file != files.end(); ++file) {
    const std::string reasons = download(*file, urls, folder, stall_seconds);
    if (!reasons.empty()) {
      throw DataError(
          "[fetch] " + set.name + " is not fetched: no mirror has " + file->name +
          " (" + reasons + "); " + remedy({file, files.end()}, folder) +
          ", or name another mirror in $TANDEM_MIRRORS");
    }
  }
}

}  // namespace

std::string fetch(const RemoteSet& set, const FetchOptions& options) {
  // `--data NAME` may find the files in another folder than target_folder().
  const std::string found = options.to.empty() ? find_dataset(set.name) : options.to;
  if (!found.empty() && wrong_files(set, found).empty()) {
    return keep(set, found);
  }
  // The patience is longer than stall_seconds, because another process may try several
  // mirrors.
  const std::string folder = target_folder(set, options);
  const TargetFolder target(folder, std::chrono::seconds(10 * options.stall_seconds));
  const RemoteFiles wrong = wrong_files(set, folder);
  if (wrong.empty()) {
    return keep(set, folder);
  }
  if (!can_fetch()) {
    throw ConfigError(
        "[fetch] this build has no libcurl or no libarchive; install them (apt-get "
        "install libcurl4-openssl-dev libarchive-dev) and build again, or " +
        remedy(wrong, folder));
  }
  say("fetching " + set.name + " into " + folder);
  say_what_is_there(set, folder, wrong);
  if (!set.archive) {
    download_all(set, wrong, folder, options.stall_seconds);
    return folder;
  }
  const RemoteFile& archive = set.archive->file;
  const std::string path = folder + "/" + archive.name;
  const bool is_users_own = is_right(folder, archive);
  if (!is_users_own) {
    download_all(set, {archive}, folder, options.stall_seconds);
  }
  say("unpacking " + names_of(wrong));
  RemoteSet missing = set;
  missing.files = wrong;
  unpack(path, missing, folder);
  if (!is_users_own) {
    remove_all(path);
  }
  return folder;
}

}  // namespace tandem::app
