#include "tandem/train/line_format.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include "tandem/base/error.h"

namespace tandem {

namespace {

// fmt would take "{}" and "{3}" for the first and fourth of the names.
void refuse_places_without_name(const std::string& pattern) {
  for (size_t at = pattern.find('{'); at < pattern.size();
       at = pattern.find('{', at + 1)) {
    const char next = pattern.c_str()[at + 1];
    if (next == '{') {
      ++at;
    } else if (next == '}' || next == ':' || (next >= '0' && next <= '9')) {
      throw fmt::format_error("a name is missing in braces");
    }
  }
}

}  // namespace

std::string format_line(
    const std::string& setting, const std::string& pattern, const LineValues& v) {
  try {
    refuse_places_without_name(pattern);
    return fmt::format(
        fmt::runtime(pattern), fmt::arg("rank", v.rank), fmt::arg("epoch", v.epoch),
        fmt::arg("epoch_index", v.epoch_index), fmt::arg("epochs", v.epochs),
        fmt::arg("step", v.step), fmt::arg("step_index", v.step_index),
        fmt::arg("steps", v.steps), fmt::arg("step_percent", v.step_percent),
        fmt::arg("samples", v.samples), fmt::arg("total", v.total),
        fmt::arg("percent", v.percent), fmt::arg("share", v.share),
        fmt::arg("loss", v.loss), fmt::arg("accuracy", v.accuracy),
        fmt::arg("correct", v.correct), fmt::arg("count", v.count),
        fmt::arg("lr", v.lr), fmt::arg("samples_per_second", v.samples_per_second),
        fmt::arg("seconds", v.seconds), fmt::arg("minutes", v.minutes));
  } catch (const fmt::format_error& error) {
    throw ConfigError(
        "[config] " + setting + " is '" + pattern + "': " + error.what() +
        "; it takes rank, epoch, epochs, step, steps, step_percent, samples, total, "
        "percent, share, loss, accuracy, correct, count, lr, seconds or minutes in "
        "braces");
  }
}

}  // namespace tandem
