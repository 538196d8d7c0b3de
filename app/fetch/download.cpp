#include "app/fetch/download.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/fetch/part_file.h"
#include "app/fetch/progress.h"
#include "app/fetch/transfer.h"
#include "tandem/base/error.h"
#include "tandem/base/signals.h"

namespace tandem::app {

namespace {

// A server that breaks off again and again is left at last, however little is missing.
constexpr int kMostRequests = 30;

// One mirror's file, brought into its .part.
class Attempt {
 public:
  Attempt(
      const RemoteFile& file, const std::string& base, PartFile& part,
      int64_t stall_seconds)
      : file_(file), base_(base), part_(part), stall_seconds_(stall_seconds) {}

  // "" when the part is the file.
  std::string run() {
    std::string reason;
    for (int i = 0; i < kMostRequests; ++i) {
      first_ = part_.size();
      const TransferEnd end = first_ < file_.size ? request_rest() : TransferEnd();
      if (end.kind == TransferEnd::Kind::whole && part_.sha256() == file_.sha256) {
        return "";
      }
      reason = end.reason;
      if (!again(end, reason)) {
        return reason;
      }
    }
    return reason;
  }

 private:
  TransferEnd request_rest() {
    ProgressBar bar(file_.name, file_.size, first_);
    Transfer request;
    request.url = base_ + file_.name;
    request.size = file_.size;
    request.offset = first_;
    request.stall_seconds = stall_seconds_;
    request.start_anew = [&] { part_.clear(); };
    request.take = [&](const char* data, size_t size) { part_.append(data, size); };
    request.go_on = [&](int64_t there) {
      bar.show(there);
      return stop_signal() == 0;
    };
    return transfer(request);
  }

  // Whether another request to this mirror may help. Leaves in the part only what the
  // next one, of any mirror, may go on from.
  bool again(const TransferEnd& end, std::string& reason) {
    switch (end.kind) {
      case TransferEnd::Kind::whole:
        reason = "sent other bytes: SHA-256 " + part_.sha256() + ", expected " +
                 file_.sha256;
        part_.clear();
        // What was there before may have been wrong.
        return first_ > 0;
      case TransferEnd::Kind::broken:
        return part_.size() > first_;
      case TransferEnd::Kind::stalled:
        return false;
      case TransferEnd::Kind::no_rest:
        part_.clear();
        return first_ > 0;
      case TransferEnd::Kind::refused:
        if (part_.size() != first_) {
          part_.clear();
        }
        return false;
      case TransferEnd::Kind::stopped:
        break;
    }
    throw DataError(
        "[fetch] stopped after " + bytes_text(part_.size()) + " of " + file_.name +
        "; the same command goes on from there");
  }

  const RemoteFile& file_;
  const std::string& base_;
  PartFile& part_;
  const int64_t stall_seconds_;
  // Bytes that were there before the request.
  int64_t first_ = 0;
};

}  // namespace

bool has_right_file(const std::string& folder, const RemoteFile& file) {
  const std::string path = folder + "/" + file.name;
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  return !missing && static_cast<int64_t>(size) == file.size &&
         sha256_of_file(path) == file.sha256;
}

Downloader::Downloader(
    std::vector<std::string> urls, std::string folder, int64_t stall_seconds)
    : urls_(std::move(urls)),
      folder_(std::move(folder)),
      stall_seconds_(stall_seconds) {}

std::string Downloader::get(const RemoteFile& file) {
  PartFile part(folder_ + "/" + file.name);
  if (part.size() > file.size) {
    part.clear();
  }
  std::vector<std::string> reasons;
  for (auto url = urls_.begin(); url != urls_.end(); ++url) {
    const std::string rest = part.size() == 0 ? bytes_text(file.size)
                                              : "the rest of " + bytes_text(file.size) +
                                                    " after " + bytes_text(part.size());
    say(file.name + ": " + rest + " from " + *url);
    const std::string reason = Attempt(file, *url, part, stall_seconds_).run();
    if (reason.empty()) {
      part.rename_to_whole();
      std::rotate(urls_.begin(), url, url + 1);
      return "";
    }
    reasons.push_back(*url + " " + reason);
    if (url + 1 != urls_.end()) {
      say(file.name + ": " + reasons.back() + "; asking the next");
    }
  }
  return join(reasons, ", ");
}

}  // namespace tandem::app
