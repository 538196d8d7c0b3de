#include "app/fetch/transfer.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string_view>

#include "tandem/base/no_sigpipe.h"
#include "tandem/base/text.h"

namespace tandem::app {

namespace {

constexpr long kConnectSeconds = 20;
constexpr long kStallBytesPerSecond = 1000;
constexpr long kMostRedirects = 8;
constexpr long kHttpOk = 200;
constexpr long kHttpPart = 206;
constexpr long kHttpNoSuchRange = 416;

bool starts_with(std::string_view text, std::string_view lower_case) {
  return text.size() >= lower_case.size() &&
         std::equal(
             lower_case.begin(), lower_case.end(), text.begin(),
             [](char wanted, unsigned char c) { return wanted == std::tolower(c); });
}

bool begins_as_html(std::string_view body) {
  body.remove_prefix(std::min(body.find_first_not_of(" \t\r\n"), body.size()));
  return starts_with(body, "<!doctype html") || starts_with(body, "<html");
}

// 5 of "bytes 5-9/10".
std::optional<int64_t> first_of_range(std::string_view header) {
  const size_t digit = header.find_first_of("0123456789");
  const size_t dash = header.find('-');
  if (digit == header.npos || dash == header.npos || dash < digit) {
    return std::nullopt;
  }
  return parse_number<int64_t>(std::string(header.substr(digit, dash - digit)));
}

// A request to libcurl, whose callbacks are its methods.
class CurlRequest {
 public:
  explicit CurlRequest(const Transfer& request)
      : request_(request), handle_(curl_easy_init(), &curl_easy_cleanup) {
    if (handle_ == nullptr) {
      throw std::bad_alloc();
    }
    there_ = request.offset;
    set_limits();
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_ERRORBUFFER, static_cast<char*>(error_));
    set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    set(CURLOPT_WRITEFUNCTION, &CurlRequest::on_data);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(this));
    set(CURLOPT_XFERINFOFUNCTION, &CurlRequest::on_progress);
    set(CURLOPT_NOPROGRESS, 0L);
    if (request.offset > 0) {
      // Not CURLOPT_RESUME_FROM: that fails where a server sends the whole file.
      set(CURLOPT_RANGE, (std::to_string(request.offset) + "-").c_str());
    }
  }

  TransferEnd run() {
    const CURLcode code = curl_easy_perform(handle_.get());
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
    if (!refusal_.reason.empty()) {
      return refusal_;
    }
    return code == CURLE_OK ? end_of_answer() : end_of_failure(code);
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(handle_.get(), option, value);
  }

  void set_limits() {
    set(CURLOPT_PROTOCOLS_STR, "http,https,file");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMostRedirects);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request_.stall_seconds));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "tandem");
  }

  long answer_code() const {
    long code = 0;
    curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  std::string header(const char* name) const {
    curl_header* found = nullptr;
    return curl_easy_header(handle_.get(), name, 0, CURLH_HEADER, -1, &found) ==
                   CURLHE_OK
               ? found->value
               : "";
  }

  bool refuse(const std::string& reason) {
    refusal_ = {TransferEnd::Kind::refused, reason};
    return false;
  }

  // Looks at what the server says, before the first byte of `body` is taken.
  bool accept_answer(std::string_view body) {
    const long code = answer_code();
    const bool from_start = code == kHttpOk;
    curl_off_t length = -1;
    curl_easy_getinfo(handle_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    const int64_t wanted = request_.size - (from_start ? 0 : request_.offset);
    if (begins_as_html(body) ||
        (length != wanted && starts_with(header("Content-Type"), "text/html"))) {
      return refuse("answered with an HTML page instead of the file");
    }
    if (code == kHttpPart &&
        first_of_range(header("Content-Range")) != request_.offset) {
      refuse("answered with another part of the file");
      refusal_.kind = TransferEnd::Kind::no_rest;
      return false;
    }
    if (code != 0 && code != kHttpPart && code != kHttpOk) {
      return refuse("answered " + std::to_string(code));
    }
    if (length >= 0 && length != wanted) {
      return refuse(
          "offers " + std::to_string(length) + " bytes instead of " +
          std::to_string(wanted));
    }
    if (from_start && request_.offset > 0) {
      request_.start_anew();
      there_ = 0;
    }
    return true;
  }

  bool take(std::string_view body) {
    if (!accepted_ && !accept_answer(body)) {
      return false;
    }
    accepted_ = true;
    const auto size = static_cast<int64_t>(body.size());
    if (size > request_.size - there_) {
      return refuse("sends more than the " + std::to_string(request_.size) + " bytes");
    }
    request_.take(body.data(), body.size());
    there_ += size;
    return true;
  }

  static size_t on_data(char* data, size_t, size_t size, void* self) {
    auto& request = *static_cast<CurlRequest*>(self);
    try {
      return request.take({data, size}) ? size : CURL_WRITEFUNC_ERROR;
    } catch (...) {
      request.thrown_ = std::current_exception();
      return CURL_WRITEFUNC_ERROR;
    }
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const auto& request = *static_cast<CurlRequest*>(self);
    return request.request_.go_on(request.there_) ? 0 : 1;
  }

  TransferEnd end_of_answer() const {
    if (there_ == request_.size) {
      return {};
    }
    return {
        TransferEnd::Kind::broken, "ended after " + std::to_string(there_) +
                                       " of the " + std::to_string(request_.size) +
                                       " bytes"};
  }

  TransferEnd end_of_failure(CURLcode code) const {
    using Kind = TransferEnd::Kind;
    const std::string said = error_[0] != '\0' ? error_ : curl_easy_strerror(code);
    switch (code) {
      case CURLE_ABORTED_BY_CALLBACK:
        return {Kind::stopped, ""};
      case CURLE_HTTP_RETURNED_ERROR:
        return {
            answer_code() == kHttpNoSuchRange && request_.offset > 0 ? Kind::no_rest
                                                                     : Kind::refused,
            "answered " + std::to_string(answer_code())};
      case CURLE_BAD_DOWNLOAD_RESUME:
        return {Kind::no_rest, said};
      case CURLE_UNSUPPORTED_PROTOCOL:
        return {Kind::refused, "redirects to what is not http: " + said};
      case CURLE_PARTIAL_FILE:
      case CURLE_RECV_ERROR:
      case CURLE_GOT_NOTHING:
      case CURLE_HTTP2:
      case CURLE_HTTP2_STREAM:
        return {Kind::broken, said};
      case CURLE_OPERATION_TIMEDOUT:
        return {Kind::stalled, said};
      default:
        return {Kind::refused, said};
    }
  }

  const Transfer& request_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle_;
  char error_[CURL_ERROR_SIZE] = "";
  int64_t there_ = 0;
  bool accepted_ = false;
  TransferEnd refusal_;
  std::exception_ptr thrown_;
};

}  // namespace

bool can_transfer() {
  return true;
}

TransferEnd transfer(const Transfer& request) {
  // CURLOPT_NOSIGNAL leaves it to us.
  const NoSigpipe quiet;
  return CurlRequest(request).run();
}

}  // namespace tandem::app
