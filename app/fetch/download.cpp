#include "app/fetch/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <new>

#include "app/fetch/progress.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/output.h"
#include "tandem/base/sha256.h"
#include "tandem/base/signals.h"

namespace tandem::app {

namespace {

constexpr long kConnectSeconds = 20;
constexpr long kStallBytesPerSecond = 1000;
constexpr long kMaxRedirects = 8;
// Maximum number of requests per mirror and file. Limits the retries if a server breaks
// the connection repeatedly.
constexpr int kMaxRequests = 30;
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr const char* kEraseLine = "\r\033[K";
constexpr long kHttpRangeNotSatisfiable = 416;

// The file PATH.part, which has the first bytes of the file PATH. It remains if the
// process ends, so that a later process can resume.
class PartFile {
 public:
  PartFile(const std::string& folder, const std::string& name)
      : folder_(folder), path_(folder + "/" + name), part_path_(path_ + ".part") {
    // O_NOFOLLOW, because a link could refer to a file outside the folder.
    fd_ = open(part_path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd_ < 0) {
      fail_on_file("write", part_path_);
    }
    size_ = lseek(fd_, 0, SEEK_END);
  }
  ~PartFile() {
    if (size_ == 0) {
      unlink(part_path_.c_str());
    }
    close(fd_);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  int64_t size() const {
    return size_;
  }
  void append(const char* data, size_t size) {
    write_all(fd_, data, size, part_path_);
    size_ += static_cast<int64_t>(size);
  }
  void truncate(int64_t size) {
    if (ftruncate(fd_, size) != 0 || lseek(fd_, size, SEEK_SET) != size) {
      fail_on_file("write", part_path_);
    }
    size_ = size;
  }
  std::string sha256() const {
    return sha256_of_file(part_path_);
  }
  // Renames PATH.part to PATH.
  void complete() {
    if (fsync(fd_) != 0 || rename(part_path_.c_str(), path_.c_str()) != 0) {
      fail_on_file("write", path_);
    }
    sync_directory(folder_);
  }

 private:
  const std::string folder_;
  const std::string path_;
  const std::string part_path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// A request for the bytes of a file from the offset `start` to the end. They replace
// the bytes of the part from this offset.
class Request {
 public:
  Request(
      const std::string& url, const RemoteFile& file, PartFile& part, int64_t start,
      int64_t stall_seconds)
      : file_(file),
        part_(part),
        start_(start),
        handle_(curl_easy_init(), &curl_easy_cleanup) {
    if (handle_ == nullptr) {
      throw std::bad_alloc();
    }
    set(CURLOPT_URL, (url + file.name).c_str());
    set(CURLOPT_RESUME_FROM_LARGE, curl_off_t{start_});
    set(CURLOPT_PROTOCOLS_STR, "http,https,file");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMaxRedirects);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall_seconds));
    set(CURLOPT_USERAGENT, "tandem");
    set(CURLOPT_ERRORBUFFER, static_cast<char*>(error_));
    set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    set(CURLOPT_WRITEFUNCTION, &Request::on_data);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(this));
    set(CURLOPT_XFERINFOFUNCTION, &Request::on_progress);
    set(CURLOPT_NOPROGRESS, 0L);
  }

  // Performs the request. The part then contains only bytes after which another request
  // can resume.
  CURLcode run() {
    const CURLcode code = curl_easy_perform(handle_.get());
    if (draws_) {
      print_now(stderr, kEraseLine);
    }
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
    if (code == CURLE_ABORTED_BY_CALLBACK) {
      throw DataError(fmt::format(
          "[fetch] stopped after {} of {}; run the same command again to resume",
          bytes_text(part_.size()), file_.name));
    }
    if (!refusal_.empty() && received_ > 0) {
      part_.truncate(start_);
    }
    return code;
  }

  bool is_complete() const {
    return refusal_.empty() && start_ + received_ == file_.size;
  }
  // Returns true if the server can send the whole file, but not the rest alone.
  bool needs_restart(CURLcode code) const {
    return start_ > 0 &&
           (code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME ||
            info<long>(CURLINFO_RESPONSE_CODE) == kHttpRangeNotSatisfiable);
  }
  // Returns the reason why the file is incomplete, such as "answered 404".
  std::string reason(CURLcode code) const {
    if (!refusal_.empty()) {
      return refusal_;
    }
    if (code == CURLE_HTTP_RETURNED_ERROR) {
      return fmt::format("answered {}", info<long>(CURLINFO_RESPONSE_CODE));
    }
    if (code == CURLE_OK) {
      return fmt::format(
          "ended after {} of the {} bytes", start_ + received_, file_.size);
    }
    return error_[0] != '\0' ? error_ : curl_easy_strerror(code);
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(handle_.get(), option, value);
  }
  template <typename Value>
  Value info(CURLINFO name) const {
    Value value{};
    curl_easy_getinfo(handle_.get(), name, &value);
    return value;
  }

  // Returns the reason to refuse an answer that has `size` more bytes, or "". Before
  // libcurl 8.4, CURLOPT_MAXFILESIZE_LARGE applies only to answers with a known length.
  std::string refusal_of(int64_t size) const {
    const int64_t wanted = file_.size - start_;
    const auto length = info<curl_off_t>(CURLINFO_CONTENT_LENGTH_DOWNLOAD_T);
    const auto* type = info<const char*>(CURLINFO_CONTENT_TYPE);
    if (length != wanted && type != nullptr &&
        curl_strnequal(type, "text/html", 9) != 0) {
      return "answered with an HTML page instead of the file";
    }
    if (length >= 0 && length != wanted) {
      return fmt::format("offers {} bytes instead of {}", length, wanted);
    }
    return received_ + size > wanted
               ? fmt::format("sends more than the {} bytes", file_.size)
               : "";
  }

  static size_t on_data(char* data, size_t, size_t size, void* self) {
    auto& request = *static_cast<Request*>(self);
    try {
      request.refusal_ = request.refusal_of(static_cast<int64_t>(size));
      if (!request.refusal_.empty()) {
        return CURL_WRITEFUNC_ERROR;
      }
      if (request.received_ == 0) {
        request.part_.truncate(request.start_);
      }
      request.part_.append(data, size);
      request.received_ += static_cast<int64_t>(size);
      return size;
    } catch (...) {
      // An exception must not unwind libcurl's frames.
      request.thrown_ = std::current_exception();
      return CURL_WRITEFUNC_ERROR;
    }
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    static_cast<Request*>(self)->draw();
    return stop_signal() != 0 ? 1 : 0;
  }

  // Limits redraws, because libcurl reports progress for every piece that arrives.
  void draw() {
    const auto now = std::chrono::steady_clock::now();
    if (draws_ && now >= next_draw_) {
      next_draw_ = now + kRedrawInterval;
      const auto speed = info<curl_off_t>(CURLINFO_SPEED_DOWNLOAD_T);
      const auto line =
          progress_line(file_.name, start_ + received_, file_.size, speed);
      print_now(stderr, kEraseLine + line + "\r");
    }
  }

  const RemoteFile& file_;
  PartFile& part_;
  const int64_t start_;
  int64_t received_ = 0;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle_;
  char error_[CURL_ERROR_SIZE] = "";
  std::string refusal_;
  std::exception_ptr thrown_;
  const bool draws_ = is_terminal(STDERR_FILENO);
  std::chrono::steady_clock::time_point next_draw_{};
};

// Completes the part from one mirror and checks its SHA-256. Returns "", or the reason
// why it failed.
std::string download_from(
    const std::string& url, const RemoteFile& file, PartFile& part,
    int64_t stall_seconds) {
  std::string reason;
  bool can_resume = true;
  for (int i = 0; i < kMaxRequests; ++i) {
    const int64_t start = can_resume ? part.size() : 0;
    if (start < file.size) {
      Request request(url, file, part, start, stall_seconds);
      const CURLcode code = request.run();
      if (request.needs_restart(code)) {
        can_resume = false;
        continue;
      }
      if (!request.is_complete()) {
        reason = request.reason(code);
        // Does not retry if the server has stalled, because another mirror is probably
        // faster.
        if (!can_resume || part.size() <= start || code == CURLE_OPERATION_TIMEDOUT) {
          return reason;
        }
        continue;
      }
    }
    const std::string sha256 = part.sha256();
    if (sha256 == file.sha256) {
      return "";
    }
    reason = "sent other bytes: SHA-256 " + sha256 + ", expected " + file.sha256;
    part.truncate(0);
    // The bytes before `start` may be wrong, so the whole file is requested again,
    // unless `start` is 0.
    if (start == 0) {
      return reason;
    }
  }
  return reason;
}

}  // namespace

bool can_fetch() {
  return true;
}

std::string download(
    const RemoteFile& file, std::vector<std::string>& urls, const std::string& folder,
    int64_t stall_seconds) {
  PartFile part(folder, file.name);
  if (part.size() > file.size) {
    part.truncate(0);
  }
  std::vector<std::string> reasons;
  for (auto url = urls.begin(); url != urls.end(); ++url) {
    const std::string rest = part.size() == 0 ? bytes_text(file.size)
                                              : "the rest of " + bytes_text(file.size) +
                                                    " after " + bytes_text(part.size());
    say(file.name + ": " + rest + " from " + *url);
    const std::string reason = download_from(*url, file, part, stall_seconds);
    if (reason.empty()) {
      part.complete();
      std::rotate(urls.begin(), url, url + 1);
      return "";
    }
    reasons.push_back(*url + " " + reason);
    if (url + 1 != urls.end()) {
      say(file.name + ": " + reasons.back() + "; trying the next mirror");
    }
  }
  return join(reasons, ", ");
}

}  // namespace tandem::app
