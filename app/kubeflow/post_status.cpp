#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "app/kubeflow/progress_server.h"
#include "tandem/base/files.h"

namespace tandem::app {

namespace {

constexpr long kFirstCodeOfFailure = 300;

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using Headers = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

bool is_token_character(char c) {
  return c > ' ' && c <= '~';
}

// Returns the header with the token, "" if the file has no token. A line break in the
// token would begin another header.
std::string authorization(const std::string& token_file) {
  std::string token = read_file(token_file);
  token.erase(token.find_last_not_of(" \r\n") + 1);
  return !token.empty() && std::all_of(token.begin(), token.end(), is_token_character)
             ? "Authorization: Bearer " + token
             : "";
}

size_t ignore_answer(char*, size_t, size_t size, void*) {
  return size;
}

int check_abandoned(void* abandoned, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<const std::function<bool()>*>(abandoned))() ? 1 : 0;
}

}  // namespace

std::string post_status(
    const ProgressServer& server, const std::string& body,
    std::chrono::milliseconds timeout, const std::function<bool()>& abandoned) {
  std::string token;
  if (!server.token_file.empty()) {
    token = authorization(server.token_file);
    if (token.empty()) {
      return "needs a token, but " + server.token_file + " has none";
    }
  }
  const Handle handle(curl_easy_init(), &curl_easy_cleanup);
  Headers headers(
      curl_slist_append(nullptr, "Content-Type: application/json"),
      &curl_slist_free_all);
  if (!token.empty()) {
    headers.reset(curl_slist_append(headers.release(), token.c_str()));
  }
  char error[CURL_ERROR_SIZE] = "";
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(handle.get(), option, value);
  };
  set(CURLOPT_URL, server.url.c_str());
  // The token must not be sent unencrypted.
  set(CURLOPT_PROTOCOLS_STR, "https");
  if (!server.ca_file.empty()) {
    set(CURLOPT_CAINFO, server.ca_file.c_str());
    set(CURLOPT_CAPATH, static_cast<char*>(nullptr));
  }
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_POSTFIELDS, body.c_str());
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  set(CURLOPT_NOSIGNAL, 1L);
  // Without this option, the end of the request waits for the DNS server.
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_USERAGENT, "tandem");
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(error));
  set(CURLOPT_WRITEFUNCTION, &ignore_answer);
  set(CURLOPT_XFERINFOFUNCTION, &check_abandoned);
  set(CURLOPT_XFERINFODATA, const_cast<std::function<bool()>*>(&abandoned));
  set(CURLOPT_NOPROGRESS, 0L);
  const CURLcode code = curl_easy_perform(handle.get());
  if (code != CURLE_OK) {
    return fmt::format(
        "failed ({})", error[0] != '\0' ? error : curl_easy_strerror(code));
  }
  long answer = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &answer);
  return answer < kFirstCodeOfFailure ? "" : fmt::format("answered {}", answer);
}

}  // namespace tandem::app
