#include "tandem/launch/status/status_client.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/base/text.h"
#include "tandem/launch/status/run_status.h"

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

using Row = std::vector<std::string>;

std::string time_text(double seconds) {
  if (seconds < 120) {
    return fmt::format("{:.0f} s", seconds);
  }
  return seconds < 7200 ? fmt::format("{:.0f} min", seconds / 60)
                        : fmt::format("{:.1f} h", seconds / 3600);
}

std::string activity_text(const RankStatus& rank) {
  std::string text = rank.suspended ? "suspended, " : "";
  text += name_of(rank.activity);
  if (!rank.operation.empty()) {
    text += ", waits " + time_text(rank.waiting_seconds) + " in " + rank.operation;
  }
  return text;
}

Row row_of(const RankStatus& rank) {
  const bool has_values = rank.samples_per_second > 0;
  return {
      std::to_string(rank.rank),
      rank.host.empty() ? "-" : rank.host,
      rank.step < 0 ? "-" : std::to_string(rank.step),
      has_values ? fmt::format("{:.4g}", rank.loss) : "-",
      has_values ? fmt::format("{:.0f}", rank.samples_per_second) : "-",
      rank.checkpoint_step < 0 ? "-" : time_text(rank.checkpoint_seconds) + " ago",
      activity_text(rank)};
}

// Aligns the columns. The last column, which has texts of any length, is not padded.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t column = 0; column + 1 < row.size(); ++column) {
      text += fmt::format("{:<{}}  ", row[column], widths[column]);
    }
    text += row.back() + "\n";
  }
  return text;
}

std::string line_of_run(const RunStatus& status) {
  std::string text =
      fmt::format("{} rank{}", status.world_size, status.world_size == 1 ? "" : "s");
  if (const auto* rank = status.furthest()) {
    text += fmt::format(", epoch {}, step {}", rank->epoch, rank->step);
  }
  if (const auto* rank = status.with_checkpoint()) {
    text += fmt::format(", checkpoint of step {}", rank->checkpoint_step);
  }
  if (status.restarts > 0) {
    text +=
        fmt::format(", {} restart{}", status.restarts, status.restarts == 1 ? "" : "s");
  }
  return text + "\n";
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

std::string status_table(const RunStatus& status) {
  std::vector<Row> rows = {
      {"rank", "host", "step", "loss", "samples/s", "checkpoint", "activity"}};
  for (const auto& rank : status.ranks) {
    rows.push_back(row_of(rank));
  }
  return line_of_run(status) + aligned(rows);
}

}  // namespace tandem
