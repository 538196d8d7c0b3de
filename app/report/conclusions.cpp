#include "app/report/conclusions.h"

#include <fmt/core.h>

#include <algorithm>

#include "app/report/row_values.h"
#include "tandem/base/error.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

// The row of the same recipe on the fewest ranks; nullptr where none was timed.
const ordered_json* base_of(const ordered_json& row, const ordered_json& table) {
  const ordered_json* base = nullptr;
  for (const auto& other : table["rows"]) {
    const bool timed = seconds_in(other).value_or(0) > 0;
    if (timed && text_in(other, "recipe") == text_in(row, "recipe") &&
        (base == nullptr || number_in(other, "world_size").value_or(0) <
                                number_in(*base, "world_size").value_or(0))) {
      base = &other;
    }
  }
  return base;
}

// From repeats made in turn: each pass has a speed-up of its own.
ordered_json speed_up_range(const ordered_json& row, const ordered_json& base) {
  const auto own = part_in(row, "runs");
  const auto others = part_in(base, "runs");
  std::vector<double> values;
  for (size_t i = 0; i < std::min(own.size(), others.size()); ++i) {
    const auto ours = seconds_in(own[i]);
    const auto theirs = seconds_in(others[i]);
    if (ours && theirs && *ours > 0) {
      values.push_back(*theirs / *ours);
    }
  }
  if (values.empty()) {
    return {};
  }
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {{"least", *least}, {"most", *most}};
}

void add_speed_ups(ordered_json& table) {
  for (auto& row : table["rows"]) {
    const auto seconds = seconds_in(row);
    const auto* base = base_of(row, table);
    if (!seconds || *seconds <= 0 || base == nullptr) {
      continue;
    }
    const double speed_up = *seconds_in(*base) / *seconds;
    const auto range = speed_up_range(row, *base);
    row["speed_up"] = speed_up;
    if (!range.empty()) {
      row["speed_up_range"] = range;
    }
  }
}

void add_counts(ordered_json& table) {
  ordered_json counts = {{"done", 0}, {"skipped", 0}, {"failed", 0}};
  for (const auto& row : table["rows"]) {
    const auto status = text_in(row, "status");
    if (counts.contains(status)) {
      counts[status] = counts[status].get<int>() + 1;
    }
  }
  table["counts"] = counts;
}

// "3 recipes: 2 done, 1 skipped"; a status without rows is not named.
std::string counts_text(const ordered_json& table, const std::string& noun) {
  std::vector<std::string> parts;
  for (const auto& [status, count] : table["counts"].items()) {
    if (count.get<int>() > 0) {
      parts.push_back(fmt::format("{} {}", count.get<int>(), status));
    }
  }
  const size_t all = table["rows"].size();
  return fmt::format("{} {}{}", all, noun, all == 1 ? "" : "s") +
         (parts.empty() ? "" : ": " + join(parts));
}

std::string repeats_text(const ordered_json& table) {
  const auto repeats = static_cast<int>(number_in(table, "repeats").value_or(1));
  return repeats > 1 ? fmt::format(
                           "Figures are medians of {} runs, made in turn; {}.", repeats,
                           text_in(table, "kind") == "scaling"
                               ? "bars go from the least to the most"
                               : "curves are those of the median run")
                     : "Speed-ups are of one run each; --repeat 3 gives medians.";
}

}  // namespace

Conclusions conclude(ordered_json& table, const std::string& directory) {
  const std::string kind = text_in(table, "kind");
  const bool is_scaling = kind == "scaling";
  if (is_scaling) {
    add_speed_ups(table);
  }
  add_counts(table);
  const auto target = number_in(table, "target_accuracy");
  Conclusions made;
  made.runs = read_report_runs(table, directory, target);
  made.standing = is_scaling ? judge_speed_ups(made.runs) : judge(made.runs, target);
  made.counts = counts_text(table, is_scaling ? "run" : "recipe");
  made.verdict = made.standing.verdict;
  made.caveats = caveats(made.runs);
  if (is_scaling || number_in(table, "repeats").value_or(1) > 1) {
    made.caveats.insert(made.caveats.begin(), repeats_text(table));
  }
  table.erase("winner");
  if (made.standing.winner) {
    const auto& winner = *made.standing.winner;
    table["winner"] = {{"name", made.runs[winner.run].name}, {"why", made.verdict}};
  }
  return made;
}

}  // namespace tandem::app
