#include "tandem/train/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tandem {

namespace {

constexpr int64_t kBarWidth = 24;

std::string bar(double done) {
  const auto full = static_cast<int64_t>(done * kBarWidth);
  std::string text;
  for (int64_t i = 0; i < kBarWidth; ++i) {
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

Progress::Progress(int64_t epochs, bool enabled)
    : epochs_(epochs), enabled_(enabled), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Progress::show(const TrainReport& report) {
  if (!enabled_) {
    return;
  }
  const auto steps = static_cast<double>(std::max<int64_t>(1, report.steps_per_epoch));
  const double in_epoch = static_cast<double>(report.step_in_epoch) / steps;
  const double done = (static_cast<double>(report.epoch) + in_epoch) /
                      static_cast<double>(std::max<int64_t>(1, epochs_));
  const double left = done > 0 ? report.train_seconds * (1 - done) / done : 0;
  if (!terminal_) {
    fmt::print(
        "epoch {}/{}  step {}/{}  loss {:.6f}  {:.0f} samples/s\n", report.epoch + 1,
        epochs_, report.step_in_epoch, report.steps_per_epoch, report.loss,
        report.samples_per_second);
  } else {
    fmt::print(
        "\r\033[Kepoch {}/{} {} {:3.0f}%  {:.0f} samples/s  loss {:.4f}  {} left",
        report.epoch + 1, epochs_, bar(in_epoch), 100 * in_epoch,
        report.samples_per_second, report.loss, clock_text(left));
    drawn_ = true;
  }
  std::fflush(stdout);
}

void Progress::show(const TestReport& report) {
  say(fmt::format(
      "Test set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)", report.loss,
      report.correct, report.count, report.accuracy()));
}

void Progress::say(const std::string& line) {
  if (enabled_) {
    clear_line();
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
}

void Progress::clear_line() {
  if (drawn_) {
    fmt::print("\r\033[K");
    drawn_ = false;
  }
}

}  // namespace tandem
