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

double number(const ordered_json& row, const char* key) {
  return number_in(row, key).value_or(-1);
}

std::string text(const ordered_json& row, const char* key) {
  const auto found = text_in(row, key);
  return found.empty() ? kNothing : found;
}

std::string with_places(double value, int places) {
  return value < 0 ? kNothing : fmt::format("{:.{}f}", value, places);
}

// Formats a value with at least three digits and at most two decimal places.
std::string three_digits(double value) {
  return with_places(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

// Formats a tutorial's figure with the digits that the tutorial prints.
std::string as_printed(double value) {
  return value < 0 ? kNothing : fmt::format("{:.4g}", value);
}

// --- cells, made of a row and, for most columns, one of its keys ---

using Row = ordered_json;
using Key = const char*;

std::string name(const Row& row, Key) {
  const std::string status = text(row, "status");
  return text(row, "name") + (status == "done" ? "" : " (" + status + ")");
}

std::string strategy(const Row& row, Key) {
  return text(row, "status") == "done"
             ? text(row, "strategy") + ", " + text(row, "backend")
             : kNothing;
}

std::string whole(const Row& row, Key key) {
  return with_places(number(row, key), 0);
}

std::string hundredths(const Row& row, Key key) {
  return with_places(number(row, key), 2);
}

std::string four_digits(const Row& row, Key key) {
  return as_printed(number(row, key));
}

std::string figure(const Row& row, Key key) {
  return three_digits(number(row, key));
}

std::string megabytes(const Row& row, Key key) {
  return three_digits(number(row, key) / kMegabyte);
}

// A value of 0 means that the memory could not be measured.
std::string memory(const Row& row, Key key) {
  return number(row, key) == 0 ? kNothing : whole(row, key);
}

std::string seconds(const Row& row, Key) {
  return three_digits(seconds_in(row).value_or(-1));
}

// Returns the range of repeated runs, such as "1.21-1.34".
std::string range(const Row& row, Key key) {
  const auto ends = part_in(row, key);
  return number(ends, "least") < 0 ? kNothing
                                   : figure(ends, "least") + "-" + figure(ends, "most");
}

std::string tutorial_seconds(const Row& row, Key) {
  return as_printed(number(tutorial_in(row), "seconds"));
}

std::string tutorial(const Row& row, Key) {
  std::vector<std::string> parts;
  const auto figures = tutorial_in(row);
  if (const double value = number(figures, "seconds"); value >= 0) {
    parts.push_back(as_printed(value) + " s");
  }
  if (const double value = number(figures, "test_accuracy"); value >= 0) {
    parts.push_back(as_printed(value) + " %");
  } else if (const double train = number(figures, "train_accuracy"); train >= 0) {
    parts.push_back(as_printed(train) + " % train");
  }
  std::vector<double> losses;
  for (const auto& loss : part_in(figures, "last_losses")) {
    losses.push_back(loss.is_number() ? loss.get<double>() : -1);
  }
  if (!losses.empty()) {
    const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
    parts.push_back("loss " + as_printed(*least) + " to " + as_printed(*most));
  }
  return parts.empty() ? kNothing : join(parts);
}

// Tables that show a column: all tables, or only wide tables, tables of repeated runs,
// or tables of runs on GPUs.
enum class Shown { always, wide, repeated, devices };

struct Column {
  const char* title;
  Shown shown;
  std::string (*cell)(const Row& row, Key key);
  Key key = "";
  // The column is only in tables with a run of this metric; null: in all tables.
  const Metric* metric = nullptr;
};

const std::vector<Column> kRunColumns = {
    {"recipe", Shown::always, &name},
    {"strategy", Shown::wide, &strategy},
    {"ranks", Shown::always, &whole, "world_size"},
    {"test %", Shown::always, &hundredths, "test_accuracy", &kAccuracy},
    {"train %", Shown::wide, &hundredths, "train_accuracy", &kAccuracy},
    {"test MAE", Shown::always, &four_digits, "test_mae", &kAbsoluteError},
    {"train MAE", Shown::wide, &four_digits, "train_mae", &kAbsoluteError},
    {"seconds", Shown::always, &seconds},
    {"s, range", Shown::repeated, &range, "wall_seconds_range"},
    {"training s", Shown::wide, &figure, "train_seconds"},
    {"samples/s", Shown::always, &whole, "samples_per_second"},
    {"MB/rank", Shown::always, &megabytes, "bytes_sent_per_rank"},
    {"comm ms", Shown::always, &figure, "exposed_comm_ms_per_step"},
    {"MiB", Shown::always, &memory, "peak_memory_mib"},
    {"GPU MiB", Shown::devices, &whole, "peak_device_memory_mib"},
    {"tutorial", Shown::always, &tutorial}};

const std::vector<Column> kScalingColumns = {
    {"recipe", Shown::always, &name},
    {"ranks", Shown::always, &whole, "world_size"},
    {"seconds", Shown::always, &seconds},
    {"s, range", Shown::repeated, &range, "wall_seconds_range"},
    {"speed-up", Shown::always, &hundredths, "speed_up"},
    {"range", Shown::repeated, &range, "speed_up_range"},
    {"samples/s", Shown::always, &whole, "samples_per_second"},
    {"test %", Shown::always, &hundredths, "test_accuracy", &kAccuracy},
    {"test MAE", Shown::always, &four_digits, "test_mae", &kAbsoluteError},
    {"tutorial s", Shown::always, &tutorial_seconds}};

// Returns whether a run of the table has this metric. A table without test results has
// accuracies.
bool has_metric(const ordered_json& table, const Metric* metric) {
  const auto& rows = table["rows"];
  const auto has = [&](const Metric* wanted) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return metric_in(row) == wanted;
    });
  };
  return has(metric) || (metric == &kAccuracy && !has(&kAbsoluteError));
}

std::vector<Column> columns_of(const ordered_json& table, bool wide) {
  const auto& rows = table["rows"];
  const bool devices = std::any_of(rows.begin(), rows.end(), [](const Row& row) {
    return number(row, "peak_device_memory_mib") >= 0;
  });
  const auto is_shown = [&](const Column& column) {
    if (column.metric != nullptr && !has_metric(table, column.metric)) {
      return false;
    }
    return column.shown == Shown::always || (column.shown == Shown::wide && wide) ||
           (column.shown == Shown::repeated && number(table, "repeats") > 1) ||
           (column.shown == Shown::devices && devices);
  };
  const bool is_scaling = text(table, "kind") == "scaling";
  const auto& all = is_scaling ? kScalingColumns : kRunColumns;
  std::vector<Column> columns;
  std::copy_if(all.begin(), all.end(), std::back_inserter(columns), is_shown);
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

// Escapes "|", which would end the cell.
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
  const auto columns = columns_of(table, wide);
  for (const auto& column : columns) {
    made.titles.emplace_back(column.title);
  }
  for (const auto& row : table["rows"]) {
    std::vector<std::string> cells;
    cells.reserve(columns.size());
    for (const auto& column : columns) {
      cells.push_back(column.cell(row, column.key));
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
