#include "app/report/run_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/report/row_values.h"
#include "tandem/base/error.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

const char* const kNothing = "-";

struct Column {
  const char* title;
  std::string (*cell)(const ordered_json& row, const ordered_json& table);
};

double number(const ordered_json& row, const char* key) {
  return number_in(row, key).value_or(-1);
}

// Three digits or more, and no more than there is sense in.
std::string figure(double value) {
  if (value < 0) {
    return kNothing;
  }
  const int places = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return fmt::format("{:.{}f}", value, places);
}

// A document's figure, with all of its digits.
std::string as_said(double value) {
  return value < 0 ? kNothing : fmt::format("{:.4g}", value);
}

std::string percent(double value) {
  return value < 0 ? kNothing : fmt::format("{:.2f}", value);
}

std::string text(const ordered_json& row, const char* key) {
  const auto found = text_in(row, key);
  return found.empty() ? kNothing : found;
}

std::string name(const ordered_json& row, const ordered_json&) {
  const std::string status = text(row, "status");
  return text(row, "name") + (status == "done" ? "" : " (" + status + ")");
}

std::string ranks(const ordered_json& row, const ordered_json&) {
  const double value = number(row, "world_size");
  return value < 0 ? kNothing : fmt::format("{:.0f}", value);
}

std::string how(const ordered_json& row, const ordered_json&) {
  return text(row, "status") == "done"
             ? text(row, "strategy") + ", " + text(row, "backend")
             : kNothing;
}

std::string test_accuracy(const ordered_json& row, const ordered_json&) {
  return percent(number(row, "test_accuracy"));
}

std::string train_accuracy(const ordered_json& row, const ordered_json&) {
  return percent(number(row, "train_accuracy"));
}

std::string seconds(const ordered_json& row, const ordered_json&) {
  return figure(seconds_in(row).value_or(-1));
}

// Of repeated runs: "1.21-1.34".
std::string range(const ordered_json& row, const char* key) {
  const auto ends = part_in(row, key);
  const double least = number(ends, "least");
  return least < 0 ? kNothing : figure(least) + "-" + figure(number(ends, "most"));
}

std::string seconds_range(const ordered_json& row, const ordered_json&) {
  return range(row, "wall_seconds_range");
}

std::string train_seconds(const ordered_json& row, const ordered_json&) {
  return figure(number(row, "train_seconds"));
}

std::string samples_per_second(const ordered_json& row, const ordered_json&) {
  const double value = number(row, "samples_per_second");
  return value < 0 ? kNothing : fmt::format("{:.0f}", value);
}

std::string megabytes(const ordered_json& row, const ordered_json&) {
  const double bytes = number(row, "bytes_sent_per_rank");
  return bytes < 0 ? kNothing : figure(bytes / kMegabyte);
}

std::string exposed(const ordered_json& row, const ordered_json&) {
  return figure(number(row, "exposed_comm_ms_per_step"));
}

std::string memory(const ordered_json& row, const ordered_json&) {
  const double value = number(row, "peak_memory_mib");
  return value <= 0 ? kNothing : fmt::format("{:.0f}", value);
}

std::string device_memory(const ordered_json& row, const ordered_json&) {
  const double value = number(row, "peak_device_memory_mib");
  return value < 0 ? kNothing : fmt::format("{:.0f}", value);
}

bool has_devices(const ordered_json& table) {
  const auto& rows = table["rows"];
  return std::any_of(rows.begin(), rows.end(), [](const ordered_json& row) {
    return number(row, "peak_device_memory_mib") >= 0;
  });
}

std::string document(const ordered_json& row, const ordered_json&) {
  std::vector<std::string> parts;
  const auto figures = part_in(row, "document");
  if (const double value = number(figures, "seconds"); value >= 0) {
    parts.push_back(as_said(value) + " s");
  }
  if (const double value = number(figures, "test_accuracy"); value >= 0) {
    parts.push_back(as_said(value) + " %");
  } else if (const double train = number(figures, "train_accuracy"); train >= 0) {
    parts.push_back(as_said(train) + " % train");
  }
  std::vector<double> losses;
  for (const auto& loss : part_in(figures, "last_losses")) {
    losses.push_back(loss.is_number() ? loss.get<double>() : -1);
  }
  if (!losses.empty()) {
    const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
    parts.push_back("loss " + as_said(*least) + " to " + as_said(*most));
  }
  return parts.empty() ? kNothing : join(parts);
}

std::string speed_up(const ordered_json& row, const ordered_json&) {
  return percent(number(row, "speed_up"));
}

std::string speed_up_range(const ordered_json& row, const ordered_json&) {
  return range(row, "speed_up_range");
}

std::string document_seconds(const ordered_json& row, const ordered_json&) {
  return as_said(number(part_in(row, "document"), "seconds"));
}

std::vector<Column> scaling_columns(bool repeated) {
  std::vector<Column> columns = {
      {"recipe", &name}, {"ranks", &ranks}, {"seconds", &seconds}};
  if (repeated) {
    columns.push_back({"s, range", &seconds_range});
  }
  columns.push_back({"speed-up", &speed_up});
  if (repeated) {
    columns.push_back({"range", &speed_up_range});
  }
  columns.insert(
      columns.end(), {{"samples/s", &samples_per_second},
                      {"test %", &test_accuracy},
                      {"document s", &document_seconds}});
  return columns;
}

std::vector<Column> columns_of(
    const std::string& kind, bool wide, bool repeated, bool devices) {
  if (kind == "scaling") {
    return scaling_columns(repeated);
  }
  const Column kName = {"recipe", &name};
  const Column kRanks = {"ranks", &ranks};
  const Column kTest = {"test %", &test_accuracy};
  const Column kSeconds = {"seconds", &seconds};
  const Column kRate = {"samples/s", &samples_per_second};
  std::vector<Column> columns = {kName};
  if (wide) {
    columns.push_back({"strategy", &how});
  }
  columns.insert(columns.end(), {kRanks, kTest});
  if (wide) {
    columns.push_back({"train %", &train_accuracy});
  }
  columns.push_back(kSeconds);
  if (repeated) {
    columns.push_back({"s, range", &seconds_range});
  }
  if (wide) {
    columns.push_back({"training s", &train_seconds});
  }
  columns.insert(
      columns.end(),
      {kRate, {"MB/rank", &megabytes}, {"comm ms", &exposed}, {"MiB", &memory}});
  if (devices) {
    columns.push_back({"GPU MiB", &device_memory});
  }
  columns.push_back({"document", &document});
  return columns;
}

size_t width_of(const std::string& cell) {
  return static_cast<size_t>(std::count_if(
      cell.begin(), cell.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string line_of(
    const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string blank(widths[i] - width_of(cells[i]), ' ');
    line += (i == 0 ? "" : "  ") + (i == 0 ? cells[i] + blank : blank + cells[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// A cell must not end the row.
std::string escaped(const std::string& cell) {
  std::string out;
  for (const char c : cell) {
    out += c == '|' ? std::string("\\|") : std::string(1, c);
  }
  return out;
}

std::string markdown_line(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const auto& cell : cells) {
    line += " " + escaped(cell) + " |";
  }
  return line + "\n";
}

}  // namespace

RunTable make_run_table(const ordered_json& table, bool wide) {
  RunTable made;
  const bool repeated = number(table, "repeats") > 1;
  const auto columns =
      columns_of(text_in(table, "kind"), wide, repeated, has_devices(table));
  for (const auto& column : columns) {
    made.titles.emplace_back(column.title);
  }
  for (const auto& row : table["rows"]) {
    std::vector<std::string> cells;
    cells.reserve(columns.size());
    for (const auto& column : columns) {
      cells.push_back(column.cell(row, table));
    }
    made.rows.push_back(cells);
    if (text(row, "status") != "done") {
      made.notes.push_back(
          text(row, "name") + " " + text(row, "status") + ": " + text(row, "reason"));
    }
  }
  return made;
}

std::string to_text(const RunTable& table) {
  std::vector<size_t> widths;
  for (const auto& title : table.titles) {
    widths.push_back(width_of(title));
  }
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string out = line_of(table.titles, widths);
  for (const auto& row : table.rows) {
    out += line_of(row, widths);
  }
  for (const auto& note : table.notes) {
    out += note + "\n";
  }
  return out;
}

std::string to_markdown(const RunTable& table) {
  std::string out = markdown_line(table.titles);
  std::vector<std::string> rule(table.titles.size(), "---:");
  rule.front() = "---";
  out += markdown_line(rule);
  for (const auto& row : table.rows) {
    out += markdown_line(row);
  }
  for (const auto& note : table.notes) {
    out += "\n" + note + "\n";
  }
  return out;
}

}  // namespace tandem::app
