#pragma once

#include <memory>
#include <vector>

#include "tandem/comm/rpc/rpc.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

constexpr int kServer = 0;
constexpr int kFirstWorker = 1;
// Name of the request that a worker sends after a step. The request contains the sums
// of the step and, if the worker had samples, the gradients of the trainable segments.
// The reply contains the parameters of these segments.
constexpr const char* kPush = "push";
// Name of the request of a worker that makes no more steps in the epoch
// (Strategy::leave_steps()). The reply is empty.
constexpr const char* kLeave = "leave";

/// Common base class of the strategies of the parameter server and its workers.
class ParameterServerRank : public Strategy {
 public:
  ParameterServerRank(const StrategyOptions& options, const StrategyParts& parts);

  void start() override;
  void end_epoch(bool last) override;
  DataShard data_shard() const override;
  Consistency consistency() const override;
  bool steps_alone() const override {
    return is_asynchronous();
  }
  void before_evaluation() override;
  TrainingState collect_state() override;

 protected:
  int64_t num_workers() const;
  Rpc& rpc() const;
  bool is_asynchronous() const;

  std::vector<ArenaRange> trainable_;

 private:
  void take_workers_buffers(at::Tensor buffers);

  std::unique_ptr<Rpc> rpc_;
};

/// Makes the strategy of rank kServer, which updates the parameters.
std::unique_ptr<Strategy> make_server_rank(
    const StrategyOptions& options, const StrategyParts& parts);

}  // namespace tandem
