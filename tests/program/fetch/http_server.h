#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/base/store/socket.h"

namespace tandem {

struct HttpRequest {
  // Path in the request, such as "/file".
  std::string path;
  // Value of the header Range, such as "bytes=5-"; "" without this header.
  std::string range;
};

/// Answer of a web server, which may be faulty.
struct HttpAnswer {
  int code = 200;
  std::string body;
  // Lines of further headers, in addition to Content-Length and Connection.
  std::vector<std::string> headers = {};
  // Value of the header Content-Length. Not set: the size of the body. Negative: no
  // such header.
  std::optional<int64_t> length = {};
  // Number of bytes of the body after which the server closes the connection.
  size_t breaks_off_after = std::string::npos;
  // Number of bytes of the body after which the server sends nothing more, but leaves
  // the connection open.
  size_t hangs_after = std::string::npos;
  // Delay after each kilobyte of the body.
  std::chrono::milliseconds pause{0};
};

/// Returns the answer of a web server to a request for `file`. If the request has a
/// range, the answer has only that part of the file.
inline HttpAnswer answer_with(const std::string& file, const HttpRequest& request) {
  if (request.range.empty()) {
    return {200, file};
  }
  const size_t first = std::stoul(request.range.substr(request.range.find('=') + 1));
  return {
      206,
      file.substr(first),
      {"Content-Range: bytes " + std::to_string(first) + "-" +
       std::to_string(file.size() - 1) + "/" + std::to_string(file.size())}};
}

/// A web server on 127.0.0.1 with a thread for each connection. The destructor stops
/// the server.
class HttpServer {
 public:
  using Answer = std::function<HttpAnswer(const HttpRequest&)>;

  explicit HttpServer(Answer answer) : answer_(std::move(answer)) {
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~HttpServer() {
    ended_ = true;
    acceptor_.join();
    for (auto& thread : connections_) {
      thread.join();
    }
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Returns the URL of the server, such as "http://127.0.0.1:4511".
  std::string url() const {
    return "http://" + listener_.address.substr(std::string("tcp:").size());
  }
  std::vector<HttpRequest> requests() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

 private:
  void accept_all() {
    while (!ended_) {
      pollfd entry{listener_.socket.fd(), POLLIN, 0};
      if (poll(&entry, 1, 10) == 1) {
        const int fd = accept4(entry.fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0) {
          connections_.emplace_back([this, fd] { serve(fd); });
        }
      }
    }
  }

  static std::string after(const std::string& text, const std::string& mark) {
    const size_t at = text.find(mark);
    return at == std::string::npos
               ? ""
               : text.substr(
                     at + mark.size(),
                     text.find_first_of(" \r", at + mark.size()) - at - mark.size());
  }

  void serve(int fd) {
    std::string text;
    char buffer[4096];
    while (text.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
      if (got <= 0) {
        close(fd);
        return;
      }
      text.append(buffer, static_cast<size_t>(got));
    }
    const HttpRequest request = {after(text, "GET "), after(text, "\nRange: ")};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      requests_.push_back(request);
    }
    send_answer(fd, answer_(request));
    close(fd);
  }

  void send_answer(int fd, const HttpAnswer& answer) const {
    std::string head = "HTTP/1.1 " + std::to_string(answer.code) + " So\r\n";
    for (const auto& line : answer.headers) {
      head += line + "\r\n";
    }
    const auto length =
        answer.length.value_or(static_cast<int64_t>(answer.body.size()));
    if (length >= 0) {
      head += "Content-Length: " + std::to_string(length) + "\r\n";
    }
    send_all(fd, head + "Connection: close\r\n\r\n");
    const size_t end =
        std::min({answer.body.size(), answer.breaks_off_after, answer.hangs_after});
    constexpr size_t kPiece = 1024;
    for (size_t at = 0; at < end && !ended_; at += kPiece) {
      send_all(fd, answer.body.substr(at, std::min(kPiece, end - at)));
      std::this_thread::sleep_for(answer.pause);
    }
    char none = 0;
    while (answer.hangs_after != std::string::npos && !ended_ &&
           recv(fd, &none, 1, MSG_DONTWAIT) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  static void send_all(int fd, const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t now =
          send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) {
        return;
      }
      sent += static_cast<size_t>(now);
    }
  }

  const Answer answer_;
  const Listener listener_ = listen_at("tcp:127.0.0.1:0");
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::vector<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace tandem
