#include "tandem/train/report/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tandem/base/output.h"

namespace tandem {

namespace {

constexpr int64_t kBarWidth = 24;
constexpr int64_t kLeastBarWidth = 4;

std::string bar(double done, int64_t width) {
  const auto full = static_cast<int64_t>(done * static_cast<double>(width));
  std::string text = width > 0 ? " " : "";
  for (int64_t i = 0; i < width; ++i) {
    text += i < full ? "█" : "░";
  }
  return text;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds));
  return whole >= 3600
             ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
             : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

bool is_line_due(const OutputOptions& options, int64_t steps, bool last) {
  const int64_t counted = steps - (options.log_at == LogAt::first ? 1 : 0);
  return counted % options.log_every == 0 ||
         (last && options.log_at == LogAt::last_and_end);
}

bool reports(const RunConfig& config, int rank, int local_rank) {
  const LogRanks who = config.output.log_ranks;
  return who == LogRanks::all || (who == LogRanks::host ? local_rank : rank) == 0;
}

std::string describe(const TestReport& report, int decimals) {
  std::string name = report.metric->name;
  name[0] = static_cast<char>(std::toupper(name[0]));
  const std::string value = report.metric->is_percentage
                                ? fmt::format(
                                      "{}/{} ({:.{}f}%)", report.correct, report.count,
                                      report.metric_value, decimals)
                                : fmt::format("{:.4f}", report.metric_value);
  std::string part = name_of(report.part);
  part[0] = static_cast<char>(std::toupper(part[0]));
  return fmt::format(
      "{} set: Average loss: {:.4f}, {}: {}", part, report.loss, name, value);
}

std::string progress_text(const LineValues& values, int columns) {
  const double in_epoch = static_cast<double>(values.step) /
                          static_cast<double>(std::max<int64_t>(1, values.steps));
  const double done = (static_cast<double>(values.epoch_index) + in_epoch) /
                      static_cast<double>(std::max<int64_t>(1, values.epochs));
  const double left = done > 0 ? values.seconds * (1 - done) / done : 0;
  const std::string start = fmt::format("epoch {}/{}", values.epoch, values.epochs);
  const std::string percent = fmt::format(" {:3.0f}%", 100 * in_epoch);
  std::string rate = fmt::format("  {:.0f} samples/s", values.samples_per_second);
  const std::string loss = fmt::format("  loss {:.4f}", values.loss);
  std::string rest = fmt::format("  {} left", clock_text(left));
  const auto length = [&] {
    const size_t sum = start.size() + percent.size() + rate.size() + loss.size();
    return static_cast<int64_t>(sum + rest.size());
  };
  // A character in the last column would make some terminals begin a new line.
  const int64_t most = columns > 0 ? columns - 1 : length() + 1 + kBarWidth;
  for (auto* part : {&rate, &rest}) {
    if (length() > most) {
      part->clear();
    }
  }
  const int64_t room = most - length() - 1;
  const int64_t width = room < kLeastBarWidth ? 0 : std::min(room, kBarWidth);
  const std::string text = start + bar(in_epoch, width) + percent + rate + loss + rest;
  return length() > most ? text.substr(0, static_cast<size_t>(most)) : text;
}

void print_join_line(const RunConfig& config, const RankEnv& env) {
  const OutputOptions& output = config.output;
  if (output.join_line.empty() || !reports(config, env.rank, env.local_rank)) {
    return;
  }
  LineValues values;
  values.rank = env.rank;
  values.master_addr = env.master_addr;
  values.master_port = env.master_port;
  print_now(stdout, format_line("join_line", output.join_line, values) + "\n");
}

Progress::Progress(const RunConfig& config, bool first, bool prints)
    : config_(config),
      first_(first),
      prints_(prints),
      draws_(
          is_terminal(STDOUT_FILENO) && config.output.log_ranks == LogRanks::first &&
          config.output.log_line.empty()) {}

Progress::~Progress() {
  if (drawn_) {
    write("\n");
  }
}

void Progress::show(const LineValues& values) {
  if (!prints_ || config_.output.log_line == "off") {
    return;
  }
  if (draws_) {
    draw(values);
  } else if (!config_.output.log_line.empty()) {
    print(format_line("log_line", config_.output.log_line, values));
  } else {
    print(fmt::format(
        "{}epoch {}/{}  step {}/{}  loss {:.6f}  {:.0f} samples/s", rank_prefix(values),
        values.epoch, values.epochs, values.step, values.steps, values.loss,
        values.samples_per_second));
  }
}

void Progress::draw(const LineValues& values) {
  write("\r\033[K" + progress_text(values, terminal_columns(STDOUT_FILENO)));
  drawn_ = true;
}

void Progress::epoch(const LineValues& values, bool done, int64_t first_step) {
  line("epoch_line", config_.output.epoch_line, values);
  if (prints_ && done && config_.output.epoch_line.empty() &&
      config_.output.log_line.empty()) {
    print(fmt::format(
        "{}epoch {}/{}  training loss {:.6f}{}", rank_prefix(values), values.epoch,
        values.epochs, values.loss,
        first_step > 0 ? fmt::format(" from step {} on", first_step + 1) : ""));
  }
}

std::string Progress::rank_prefix(const LineValues& values) const {
  return config_.output.log_ranks == LogRanks::first
             ? ""
             : fmt::format("rank {}  ", values.rank);
}

void Progress::show(const TestReport& report, double program_seconds) {
  if (!first_ || config_.output.test_line == "off") {
    return;
  }
  LineValues values;
  values.epoch = report.epoch + 1;
  values.epoch_index = report.epoch;
  values.epochs = config_.training.epochs;
  values.loss = report.loss;
  values.metric = report.metric_value;
  values.accuracy = report.metric->is_percentage ? report.metric_value : std::nan("");
  values.correct = report.correct;
  values.count = report.count;
  values.seconds = report.train_seconds;
  values.program_seconds = program_seconds;
  print(
      config_.output.test_line.empty()
          ? describe(report, 0)
          : format_line("test_line", config_.output.test_line, values));
}

void Progress::end(const LineValues& values) {
  const bool of_its_host = prints_ && config_.output.log_ranks == LogRanks::host &&
                           !config_.output.end_line.empty();
  if (first_ || of_its_host) {
    const std::string text =
        config_.output.end_line.empty()
            ? fmt::format(
                  "Finished training in {:.1f} s, {:.0f} samples/s", values.seconds,
                  values.samples_per_second)
            : format_line("end_line", config_.output.end_line, values);
    print(emphasised(STDOUT_FILENO, Emphasis::result, text));
  }
}

void Progress::line(
    const std::string& setting, const std::string& pattern, const LineValues& values) {
  if (prints_ && !pattern.empty()) {
    print(format_line(setting, pattern, values));
  }
}

void Progress::say(const std::string& line) {
  if (first_) {
    print(line);
  }
}

// Uses one write per line, because the ranks of a host share a terminal.
void Progress::print(const std::string& line) {
  write(fmt::format("{}{}\n", drawn_ ? "\r\033[K" : "", line));
  drawn_ = false;
}

// If the output cannot be written, the run continues.
void Progress::write(const std::string& text) {
  const int reason = print_now(stdout, text);
  lost_ = lost_ == 0 ? reason : lost_;
}

std::string Progress::lost() const {
  if (lost_ != 0) {
    return std::string("standard output: ") + std::strerror(lost_);
  }
  return std::ferror(stderr) != 0 ? "standard error" : "";
}

}  // namespace tandem
