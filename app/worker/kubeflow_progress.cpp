#include "app/worker/kubeflow_progress.h"

#include <algorithm>
#include <cmath>

namespace tandem::app {

namespace {

// The last evaluation follows the last step, so only finish() sends 100 percent.
constexpr int kMostPercent = 99;

StatusSender::Post post_to(const ProgressServer& server) {
  return [server](
             const std::string& status, std::chrono::milliseconds timeout,
             const std::function<bool()>& abandoned) {
    return post_status(server, status, timeout, abandoned);
  };
}

}  // namespace

KubeflowProgress::KubeflowProgress(const ProgressServer& server, int64_t epochs)
    : epochs_(static_cast<double>(std::max<int64_t>(1, epochs))),
      sender_(server.url, post_to(server)) {}

void KubeflowProgress::on_training(const TrainReport& report) {
  const auto now = std::chrono::steady_clock::now();
  const double epoch_done =
      static_cast<double>(report.step_in_epoch) /
      static_cast<double>(std::max<int64_t>(1, report.steps_per_epoch));
  const double done = (static_cast<double>(report.epoch) + epoch_done) / epochs_;
  if (first_done_ < 0) {
    first_done_ = done;
    first_time_ = now;
  }
  if (done > first_done_) {
    const std::chrono::duration<double> passed = now - first_time_;
    status_.remaining_seconds = static_cast<int64_t>(
        std::ceil(std::max(0.0, 1 - done) * passed.count() / (done - first_done_)));
  }
  status_.percentage = std::clamp(static_cast<int>(100 * done), 0, kMostPercent);
  status_.metrics["epoch"] = static_cast<double>(report.epoch + 1);
  status_.metrics["step"] = static_cast<double>(report.step);
  status_.metrics["loss"] = report.loss;
  status_.metrics[train_key(*report.metric)] = report.metric_value;
  status_.metrics["lr"] = report.lr;
  status_.metrics["samples_per_second"] = report.samples_per_second;
  send();
}

void KubeflowProgress::on_evaluation(const TestReport& report) {
  const std::string part = name_of(report.part);
  status_.metrics[part + "_loss"] = report.loss;
  status_.metrics[part + "_" + report.metric->key] = report.metric_value;
  send();
}

void KubeflowProgress::finish() {
  status_.percentage = 100;
  status_.remaining_seconds = 0;
  sender_.finish(status_json(status_, std::chrono::system_clock::now()));
}

void KubeflowProgress::send() {
  sender_.send(status_json(status_, std::chrono::system_clock::now()));
}

std::unique_ptr<KubeflowProgress> kubeflow_progress(const RunConfig& config, int rank) {
  const auto server = rank == 0 ? find_progress_server() : std::nullopt;
  return server ? std::make_unique<KubeflowProgress>(*server, config.training.epochs)
                : nullptr;
}

}  // namespace tandem::app
