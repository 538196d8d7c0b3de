#pragma once

#include <memory>

#include "app/kubeflow/progress_server.h"
#include "app/kubeflow/status_sender.h"
#include "tandem/config/run_config.h"
#include "tandem/train/report/report_listener.h"

namespace tandem::app {

/// Sends the progress of a run to Kubeflow Trainer. A server that fails neither ends
/// nor delays the run.
class KubeflowProgress : public ReportListener {
 public:
  /// `epochs` is the number of epochs of the run.
  KubeflowProgress(const ProgressServer& server, int64_t epochs);

  void on_training(const TrainReport& report) override;
  void on_evaluation(const TestReport& report) override;
  /// Sends 100 percent after the run has completed. Waits for at most about 3 s.
  void finish();

 private:
  void send();

  const double epochs_;
  ProgressStatus status_;
  // Completed part of the run at the first report, and the time of this report.
  double first_done_ = -1;
  std::chrono::steady_clock::time_point first_time_;
  StatusSender sender_;
};

/// Returns the progress of a run on rank 0 in a pod of Kubeflow Trainer; null on other
/// ranks and outside of such a pod.
std::unique_ptr<KubeflowProgress> kubeflow_progress(const RunConfig& config, int rank);

}  // namespace tandem::app
