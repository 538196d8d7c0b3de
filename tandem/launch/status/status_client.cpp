#include "tandem/launch/status/status_client.h"

#include <string>

#include "tandem/base/text.h"
#include "tandem/launch/status/status_json.h"

namespace tandem {

namespace {

constexpr size_t kMostHeaderBytes = 8 << 10;
// Maximum size of an answer: about 512 bytes per rank, for 65,536 ranks.
constexpr size_t kMostBodyBytes = 32 << 20;

// Receives the first line and the headers. Reads single bytes, so that no part of the
// body is read.
std::string receive_headers(Socket& socket, Socket::Deadline deadline) {
  std::string headers;
  char next = 0;
  while (!ends_with(headers, "\r\n\r\n") && headers.size() < kMostHeaderBytes &&
         socket.receive_all(&next, 1, deadline)) {
    headers += next;
  }
  return headers;
}

std::optional<size_t> content_length(const std::string& headers) {
  const std::string name = "\r\nContent-Length: ";
  const size_t at = headers.find(name);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const size_t first = at + name.size();
  return parse_number<size_t>(headers.substr(first, headers.find('\r', first) - first));
}

}  // namespace

std::optional<RunStatus> request_status(Socket socket, Socket::Deadline deadline) {
  const std::string request =
      "GET /status HTTP/1.1\r\nHost: tandem\r\nConnection: close\r\n\r\n";
  if (!socket || !socket.send_all(request.data(), request.size(), deadline)) {
    return std::nullopt;
  }
  const auto length = content_length(receive_headers(socket, deadline));
  if (!length || *length > kMostBodyBytes) {
    return std::nullopt;
  }
  std::string body(*length, '\0');
  return socket.receive_all(body.data(), body.size(), deadline)
             ? run_status_from_json(body)
             : std::nullopt;
}

}  // namespace tandem
