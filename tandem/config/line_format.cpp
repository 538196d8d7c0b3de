#include "tandem/config/line_format.h"
#include "tandem/base/text.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/base/error.h"

namespace tandem {

namespace {

// Throws for braces without a name, because fmt would replace "{}" and "{3}" with the
// first and the fourth value.
void refuse_places_without_name(const std::string& pattern) {
  for (size_t at = pattern.find('{'); at < pattern.size();
       at = pattern.find('{', at + 1)) {
    const char next = pattern.c_str()[at + 1];
    if (next == '{') {
      ++at;
    } else if (next == '}' || next == ':' || (next >= '0' && next <= '9')) {
      throw fmt::format_error("braces without a name");
    }
  }
}

std::string duration_text(double seconds) {
  const auto micros = static_cast<int64_t>(std::llround(1e6 * std::max(0.0, seconds)));
  const int64_t whole = micros / 1'000'000;
  const int64_t days = whole / 86'400;
  return (days == 0   ? ""
          : days == 1 ? "1 day, "
                      : fmt::format("{} days, ", days)) +
         fmt::format("{}:{:02}:{:02}", whole / 3600 % 24, whole / 60 % 60, whole % 60) +
         (micros % 1'000'000 == 0 ? "" : fmt::format(".{:06}", micros % 1'000'000));
}

double percentage(int64_t part, int64_t whole) {
  return 100.0 * static_cast<double>(part) /
         static_cast<double>(std::max<int64_t>(1, whole));
}

// A number that has the format of Python's print() if the template has no format
// specification for it.
struct Real {
  double value;
};

}  // namespace
}  // namespace tandem

template <>
struct fmt::formatter<tandem::Real> : fmt::formatter<double> {
  auto parse(fmt::format_parse_context& context) {
    plain_ = context.begin() == context.end() || *context.begin() == '}';
    return fmt::formatter<double>::parse(context);
  }

  auto format(const tandem::Real& real, fmt::format_context& context) const {
    return plain_ ? fmt::format_to(context.out(), "{}", tandem::float_text(real.value))
                  : fmt::formatter<double>::format(real.value, context);
  }

 private:
  bool plain_ = false;
};

namespace tandem {

void set_metric(LineValues& values, const Metric& metric, double sum, double count) {
  values.metric = metric.value(sum, count);
  values.accuracy =
      metric.is_percentage ? values.metric : std::numeric_limits<double>::quiet_NaN();
  values.correct = metric.is_percentage ? static_cast<int64_t>(sum) : 0;
  values.count = static_cast<int64_t>(count);
}

std::string format_line(
    const std::string& setting, const std::string& pattern, const LineValues& v) {
  try {
    refuse_places_without_name(pattern);
    return fmt::format(
        fmt::runtime(pattern), fmt::arg("rank", v.rank), fmt::arg("epoch", v.epoch),
        fmt::arg("epoch_index", v.epoch_index), fmt::arg("epochs", v.epochs),
        fmt::arg("step", v.step), fmt::arg("steps", v.steps),
        fmt::arg("step_percent", Real{percentage(v.step, v.steps)}),
        fmt::arg("batch_index", v.batch_index),
        fmt::arg("batch_percent", Real{percentage(v.batch_index, v.steps)}),
        fmt::arg("batch_loss", Real{v.batch_loss}),
        fmt::arg("own_samples", v.own_samples), fmt::arg("samples", v.samples),
        fmt::arg("total", v.total),
        fmt::arg("percent", Real{percentage(v.samples, v.total)}),
        fmt::arg("share", v.share), fmt::arg("loss", Real{v.loss}),
        fmt::arg("metric", Real{v.metric}), fmt::arg("accuracy", Real{v.accuracy}),
        fmt::arg("correct", v.correct), fmt::arg("count", v.count),
        fmt::arg("lr", Real{v.lr}),
        fmt::arg("samples_per_second", Real{v.samples_per_second}),
        fmt::arg("seconds", Real{v.seconds}), fmt::arg("minutes", Real{v.seconds / 60}),
        fmt::arg("duration", duration_text(v.seconds)),
        fmt::arg("program_seconds", Real{v.program_seconds}),
        fmt::arg("program_minutes", Real{v.program_seconds / 60}),
        fmt::arg("master_addr", v.master_addr), fmt::arg("master_port", v.master_port),
        fmt::arg("device", v.device), fmt::arg("num_gpus", v.num_gpus));
  } catch (const fmt::format_error& error) {
    throw ConfigError(
        "[config] " + setting + " is '" + pattern + "': " + error.what() +
        "; expected in braces: rank, epoch, epoch_index, epochs, step, steps, "
        "step_percent, batch_index, batch_percent, batch_loss, own_samples, samples, "
        "total, percent, share, loss, metric, accuracy, correct, count, lr, "
        "samples_per_second, seconds, minutes, duration, program_seconds, "
        "program_minutes, master_addr, master_port, device or num_gpus; change it");
  }
}

}  // namespace tandem
