#include "app/fetch/fetch.h"

#include <algorithm>
#include <filesystem>

#include "app/fetch/download.h"
#include "app/fetch/progress.h"
#include "app/fetch/target_folder.h"
#include "app/fetch/transfer.h"
#include "app/fetch/unpack.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/data/named_datasets.h"

namespace tandem::app {

namespace {

namespace fs = std::filesystem;

std::vector<RemoteFile> wrong_files(const RemoteSet& set, const std::string& folder) {
  std::vector<RemoteFile> wrong;
  for (const auto& file : set.files) {
    if (!has_right_file(folder, file)) {
      wrong.push_back(file);
    }
  }
  return wrong;
}

// $TANDEM_DATA itself is not made: a name that is misspelt would be.
std::string target_folder(const RemoteSet& set, const FetchOptions& options) {
  if (!options.to.empty()) {
    return options.to;
  }
  const auto root = get_env("TANDEM_DATA").value_or("");
  if (root.empty()) {
    return cache_directory() + "/" + set.name;
  }
  std::error_code ignored;
  const bool is_folder = fs::is_directory(root, ignored);
  const std::string first = dataset_folders(set.name).front();
  if (is_folder && can_write_into(first)) {
    return first;
  }
  const std::string reason = is_folder ? "it cannot be written" : "it is not a folder";
  say("not into $TANDEM_DATA, " + root + ": " + reason);
  return cache_directory() + "/" + set.name;
}

std::string names_of(const std::vector<RemoteFile>& files) {
  std::vector<std::string> names;
  for (const auto& file : files) {
    names.push_back(file.name);
  }
  return join(names);
}

// What a user does who cannot fetch: `files` are what is missing of the set.
std::string by_hand(
    const RemoteSet& set, const std::vector<RemoteFile>& files,
    const std::string& folder) {
  return set.archive ? "put " + set.archive->file.name + " into '" + folder +
                           "' by hand and run this again"
                     : "put " + names_of(files) + " into '" + folder + "' by hand";
}

[[noreturn]] void fail_fetch(
    const RemoteSet& set, const std::string& file, const std::string& reasons,
    const std::string& remedy) {
  throw DataError(
      "[fetch] " + set.name + " is not fetched: no mirror has " + file + " (" +
      reasons + "); " + remedy + ", or name another mirror in $TANDEM_MIRRORS");
}

void say_kept(const RemoteSet& set, const std::string& folder) {
  say(set.name + " is in " + folder + " already, with the right SHA-256: kept");
}

void say_what_is_there(
    const RemoteSet& set, const std::string& folder,
    const std::vector<RemoteFile>& wrong) {
  for (const auto& file : set.files) {
    const bool is_wrong = std::any_of(
        wrong.begin(), wrong.end(),
        [&](const RemoteFile& one) { return one.name == file.name; });
    if (!is_wrong) {
      say(file.name + ": there already, with the right SHA-256: kept");
    } else if (file_exists(folder + "/" + file.name)) {
      say(file.name + ": there, but with other bytes: replaced");
    }
  }
}

void fetch_files(
    const RemoteSet& set, const std::string& folder,
    const std::vector<RemoteFile>& wrong, Downloader& downloader) {
  for (size_t i = 0; i < wrong.size(); ++i) {
    const std::string reasons = downloader.get(wrong[i]);
    if (!reasons.empty()) {
      const std::vector<RemoteFile> left(
          wrong.begin() + static_cast<long>(i), wrong.end());
      fail_fetch(set, wrong[i].name, reasons, by_hand(set, left, folder));
    }
  }
}

// Once its files are there the archive that was fetched goes; one that a user has put
// there stays.
void fetch_archive(
    const RemoteSet& set, const std::string& folder, bool is_there,
    const std::vector<RemoteFile>& wrong, Downloader& downloader) {
  const RemoteFile& archive = set.archive->file;
  if (!is_there) {
    const std::string reasons = downloader.get(archive);
    if (!reasons.empty()) {
      fail_fetch(set, archive.name, reasons, by_hand(set, wrong, folder));
    }
  }
  const std::string path = folder + "/" + archive.name;
  say("unpacking " + names_of(wrong));
  RemoteSet missing = set;
  missing.files = wrong;
  unpack(path, missing, folder);
  if (!is_there) {
    remove_all(path);
  }
}

}  // namespace

std::string fetch(const RemoteSet& set, const FetchOptions& options) {
  // What --data takes, if anything, may be in another place than what would be written.
  const std::string place = options.to.empty() ? find_dataset(set.name) : options.to;
  if (!place.empty() && wrong_files(set, place).empty()) {
    say_kept(set, place);
    return place;
  }
  // The other one tries its mirrors in turn.
  const TargetFolder target(
      target_folder(set, options), std::chrono::seconds(10 * options.stall_seconds));
  const std::string& folder = target.path();
  const auto wrong = wrong_files(set, folder);
  if (wrong.empty()) {
    say_kept(set, folder);
    return folder;
  }
  const bool has_archive = set.archive && has_right_file(folder, set.archive->file);
  if (!can_transfer() && !has_archive) {
    throw ConfigError(
        "[fetch] this build of tandem has no libcurl; install it (apt-get install "
        "libcurl4-openssl-dev) and build again, or " +
        by_hand(set, wrong, folder));
  }
  say("fetching " + set.name + " into " + folder);
  say_what_is_there(set, folder, wrong);
  Downloader downloader(set.urls, folder, options.stall_seconds);
  if (set.archive) {
    fetch_archive(set, folder, has_archive, wrong, downloader);
  } else {
    fetch_files(set, folder, wrong, downloader);
  }
  return folder;
}

}  // namespace tandem::app
