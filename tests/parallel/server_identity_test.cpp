// Compares a synchronous parameter server with replicas.

#include <gtest/gtest.h>

#include <string>

#include "tests/parallel/identity.h"

namespace tandem::server_identity_test {

// A synchronous server and its workers give the bits of as many replicas, because
// thread ranks and the server both sum in rank order.
struct ServerRow {
  const char* name;
  int workers;
  int64_t micro_batches;
  int64_t data_size;
  double clip_norm;
  OptimizerKind optimizer;
};

void PrintTo(const ServerRow& row, std::ostream* out) {
  *out << row.name;
}

class ServerIdentity : public testing::TestWithParam<ServerRow> {};

TEST_P(ServerIdentity, EqualsDataParallel) {
  const ServerRow& row = GetParam();
  RunOptions options;
  options.layers = net_layers();
  options.data_size = row.data_size;
  options.tail = Tail::keep;
  options.micro_batches = row.micro_batches;
  options.strategy.clip_norm = row.clip_norm;
  if (row.optimizer != options.optimizer.kind) {
    options.optimizer = OptimizerOptions();
    options.optimizer.kind = row.optimizer;
    options.lr = 0.002;
  }
  // Replicas start with rank 0's parameters, as the workers do.
  const auto replicas = train_in_parallel(row.workers, options);
  options.strategy.kind = StrategyKind::parameter_server;
  const auto ranks = train_in_parallel(row.workers + 1, options);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.sha256, replicas[0].sha256);
  }
  EXPECT_EQ(ranks[0].sums[2].item<double>(), 0);
  for (int worker = 0; worker < row.workers; ++worker) {
    const auto at = static_cast<size_t>(worker);
    EXPECT_TRUE(ranks[at + 1].sums.equal(replicas[at].sums)) << worker;
  }
}

const ServerRow kServerRows[] = {
    {"one_worker", 1, 1, 60, 0, OptimizerKind::sgd},
    {"two_workers", 2, 1, 60, 0, OptimizerKind::sgd},
    {"two_workers_uneven", 2, 1, 61, 0, OptimizerKind::sgd},
    {"two_workers_two_accumulations", 2, 2, 61, 0, OptimizerKind::sgd},
    {"two_workers_clipped", 2, 1, 60, 0.5, OptimizerKind::sgd},
    {"two_workers_adam", 2, 1, 60, 0, OptimizerKind::adam},
    {"three_workers", 3, 1, 60, 0, OptimizerKind::sgd},
    {"four_workers_one_idle", 4, 1, 49, 0, OptimizerKind::adamw},
};

INSTANTIATE_TEST_SUITE_P(
    Table, ServerIdentity, testing::ValuesIn(kServerRows),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace tandem::server_identity_test
