#include "app/recipe_runs/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

constexpr double kMebibyte = 1 << 20;
constexpr Sharding kKinds[] = {
    Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::parameters};

std::vector<int> columns_of(int fewest_ranks, int most_ranks) {
  return fewest_ranks == most_ranks ? std::vector<int>{fewest_ranks}
                                    : std::vector<int>{fewest_ranks, most_ranks};
}

}  // namespace

TensorBytes tensor_bytes_of(const ordered_json& step) {
  const auto& json = step.at("tensor_bytes");
  return {
      json.at("parameters"), json.at("trained"), json.at("optimizer"),
      json.at("activations"), json.at("largest_bucket")};
}

double bytes_per_rank(const TensorBytes& bytes, Sharding shard, int ranks) {
  // The bytes of values of which a rank keeps its part if `shard` includes `kind`.
  const auto part = [&](double whole, Sharding kind) {
    const double buckets =
        kind == Sharding::optimizer || ranks == 1 ? 0 : 2 * bytes.largest_bucket;
    return shard >= kind ? std::min(whole, whole / ranks + buckets) : whole;
  };
  return bytes.activations + bytes.parameters - bytes.trained +
         part(bytes.trained, Sharding::parameters) +
         part(bytes.trained, Sharding::gradients) +
         part(bytes.optimizer, Sharding::optimizer);
}

double bytes_sent(const TensorBytes& bytes, Sharding shard, int ranks) {
  const double passes = shard == Sharding::parameters ? 3 : 2;
  return passes * bytes.trained * (ranks - 1) / ranks;
}

RunTable memory_table(const TensorBytes& bytes, int fewest_ranks, int most_ranks) {
  RunTable table;
  table.titles = {"shard"};
  for (const int ranks : columns_of(fewest_ranks, most_ranks)) {
    table.titles.push_back(fmt::format("MiB per rank of {}", ranks));
    table.titles.emplace_back("MB sent per step");
  }
  for (const Sharding shard : kKinds) {
    std::vector<std::string> row = {name_of(shard)};
    for (const int ranks : columns_of(fewest_ranks, most_ranks)) {
      row.push_back(
          fmt::format("{:.1f}", bytes_per_rank(bytes, shard, ranks) / kMebibyte));
      row.push_back(fmt::format("{:.2f}", bytes_sent(bytes, shard, ranks) / 1e6));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

ordered_json memory_json(const TensorBytes& bytes, int fewest_ranks, int most_ranks) {
  auto rows = ordered_json::array();
  for (const Sharding shard : kKinds) {
    for (const int ranks : columns_of(fewest_ranks, most_ranks)) {
      rows.push_back(
          {{"shard", name_of(shard)},
           {"ranks", ranks},
           {"bytes_per_rank", bytes_per_rank(bytes, shard, ranks)},
           {"bytes_sent", bytes_sent(bytes, shard, ranks)}});
    }
  }
  return rows;
}

}  // namespace tandem::app
