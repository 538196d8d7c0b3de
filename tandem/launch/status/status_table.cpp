#include "tandem/launch/status/status_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace tandem {

namespace {

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

std::string status_table(const RunStatus& status) {
  std::vector<Row> rows = {
      {"rank", "host", "step", "loss", "samples/s", "checkpoint", "activity"}};
  for (const auto& rank : status.ranks) {
    rows.push_back(row_of(rank));
  }
  return line_of_run(status) + aligned(rows);
}

}  // namespace tandem
