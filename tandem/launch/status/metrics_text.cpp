#include "tandem/launch/status/metrics_text.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>
#include <vector>

namespace tandem {

namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

std::string number_text(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  return std::isinf(value) ? (value < 0 ? "-Inf" : "+Inf") : fmt::format("{}", value);
}

std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c == '\\' || c == '"' ? std::string{'\\', c} : std::string{c};
    }
  }
  return text;
}

// Text of metrics with their descriptions.
class MetricsText {
 public:
  // Begins a metric. Its samples must follow.
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  void sample(double value, const Labels& labels = {}) {
    std::string list;
    for (const auto& [label, text] : labels) {
      list +=
          fmt::format("{}{}=\"{}\"", list.empty() ? "{" : ",", label, escaped(text));
    }
    text_ += name_ + list + (list.empty() ? " " : "} ") + number_text(value) + "\n";
  }
  // Adds a metric of the run with one sample.
  void add(const char* name, const char* type, const char* help, double value) {
    begin(name, type, help);
    sample(value);
  }

  std::string take() {
    return std::move(text_);
  }

 private:
  std::string name_;
  std::string text_;
};

void add_progress(MetricsText& text, const RunStatus& status) {
  if (const auto* rank = status.furthest()) {
    text.add(
        "tandem_step", "gauge", "Optimizer steps since the run began.",
        static_cast<double>(rank->step));
    text.add(
        "tandem_last_step_timestamp_seconds", "gauge",
        "Time at which the last step ended, in seconds since 1970.",
        status.collected_at - rank->step_seconds);
    text.add(
        "tandem_epoch", "gauge", "Number of the epoch, from 1.",
        static_cast<double>(rank->epoch));
  }
  if (const auto* rank = status.with_values()) {
    text.add("tandem_loss", "gauge", "Training loss of the last report.", rank->loss);
    text.add(
        "tandem_learning_rate", "gauge", "Learning rate of the last report.",
        rank->learning_rate);
    text.add(
        "tandem_samples_per_second", "gauge",
        "Samples per second of all ranks, in the last report.",
        rank->samples_per_second);
  }
  if (const auto* rank = status.with_checkpoint()) {
    text.add(
        "tandem_checkpoint_step", "gauge",
        "Step of the newest checkpoint that this start of the ranks saved.",
        static_cast<double>(rank->checkpoint_step));
    text.add(
        "tandem_checkpoint_timestamp_seconds", "gauge",
        "Time at which this checkpoint was saved, in seconds since 1970.",
        status.collected_at - rank->checkpoint_seconds);
  }
}

void add_ranks(MetricsText& text, const RunStatus& status) {
  const auto labels = [](const RankStatus& rank) {
    return Labels{{"rank", std::to_string(rank.rank)}, {"host", rank.host}};
  };
  text.begin(
      "tandem_rank_waiting_seconds", "gauge",
      "Time for which a rank has waited for other ranks; 0 if it does not wait.");
  for (const auto& rank : status.ranks) {
    text.sample(rank.waiting_seconds, labels(rank));
  }
  text.begin(
      "tandem_rank_suspended", "gauge", "1 if the process of a rank is suspended.");
  for (const auto& rank : status.ranks) {
    text.sample(rank.suspended ? 1 : 0, labels(rank));
  }
  text.begin(
      "tandem_rank_activity", "gauge",
      "1 for the activity of a rank, 0 for its other activities.");
  for (const auto& rank : status.ranks) {
    for (const std::string name : kActivityNames) {
      auto list = labels(rank);
      list.emplace_back("activity", name);
      text.sample(name == name_of(rank.activity) ? 1 : 0, list);
    }
  }
}

}  // namespace

std::string metrics_text(const RunStatus& status) {
  MetricsText text;
  text.add("tandem_ranks", "gauge", "Number of ranks.", status.world_size);
  text.add(
      "tandem_restarts_total", "counter",
      "Number of times that the ranks were started again.", status.restarts);
  add_progress(text, status);
  add_ranks(text, status);
  return text.take();
}

}  // namespace tandem
