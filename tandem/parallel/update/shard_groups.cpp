#include "tandem/parallel/update/shard_groups.h"

#include <string>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/comm/exchange.h"
#include "tandem/config/options/strategy_options.h"

namespace tandem {

namespace {

// Returns the number of ranks on each host. Throws ConfigError unless it is equal,
// above 1, and the ranks of each host are consecutive.
int ranks_per_host(Communicator& all) {
  const auto hosts = all.stack_digests(host_identity(), "hosts");
  int first = all.rank();
  int count = 0;
  for (int rank = all.size() - 1; rank >= 0; --rank) {
    if (hosts[rank].equal(hosts[all.rank()])) {
      first = rank;
      ++count;
    }
  }
  const auto least = reduce_count(count, ReduceOp::min, "hosts", all);
  const auto most = reduce_count(count, ReduceOp::max, "hosts", all);
  const bool is_consecutive = first % count == 0 && all.rank() < first + count;
  if (least != most ||
      reduce_count(is_consecutive ? 1 : 0, ReduceOp::min, "hosts", all) == 0) {
    throw ConfigError(
        "[parallel] hosts have " + std::to_string(least) + " to " +
        std::to_string(most) +
        " ranks, expected the same number of consecutive ranks on each host with "
        "--shard-group host; use --shard-group all");
  }
  if (count == 1 && all.size() > 1) {
    throw ConfigError(
        "[parallel] each host has one rank, so --shard-group host divides nothing; use "
        "--shard-group all");
  }
  return count;
}

}  // namespace

ShardGroups::ShardGroups(int64_t size, Communicator& all) : shard_(&all) {
  if (size == StrategyOptions::kAllRanks) {
    return;
  }
  const bool by_host = size == StrategyOptions::kRanksOfHost;
  const int64_t count = by_host ? ranks_per_host(all) : size;
  if (all.size() % count != 0) {
    throw ConfigError(
        "[parallel] shard_group is " + std::to_string(count) +
        ", expected a divisor of the " + std::to_string(all.size()) +
        " ranks; change --shard-group");
  }
  if (count == all.size()) {
    return;
  }
  const int group = static_cast<int>(count);
  index_ = all.rank() / group;
  shard_ = by_host ? all.ranks_of_host() : nullptr;
  if (shard_ == nullptr) {
    own_shard_ = all.split(index_);
    shard_ = own_shard_.get();
  }
  replicas_ = all.split(all.rank() % group);
}

}  // namespace tandem
