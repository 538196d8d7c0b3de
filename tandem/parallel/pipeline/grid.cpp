#include "tandem/parallel/pipeline/grid.h"

#include <string>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

namespace {

std::string degree(int64_t count, const std::string& what) {
  return (count == 0 ? "any" : std::to_string(count)) + " " + what;
}

// Returns all ways to divide `world_size` into stages x replicas: "1 x 4, 2 x 2, 4 x
// 1".
std::string factorizations(int world_size) {
  std::vector<std::string> pairs;
  for (int stages = 1; stages <= world_size; ++stages) {
    if (world_size % stages == 0) {
      pairs.push_back(
          std::to_string(stages) + " x " + std::to_string(world_size / stages));
    }
  }
  return join(pairs);
}

}  // namespace

Grid make_grid(int64_t stages, int64_t replicas, int rank, int world_size) {
  Grid grid;
  grid.replicas = replicas > 0                         ? replicas
                  : stages > 0 && stages <= world_size ? world_size / stages
                                                       : 1;
  grid.stages = stages > 0 ? stages : world_size / grid.replicas;
  if (grid.stages * grid.replicas != world_size) {
    throw ConfigError(
        "[grid] " + degree(stages, "stages") + " x " + degree(replicas, "replicas") +
        " do not fit " + std::to_string(world_size) +
        " ranks; set --stages x --replicas to one of " + factorizations(world_size) +
        ", or change --nproc");
  }
  grid.stage = rank % static_cast<int>(grid.stages);
  grid.replica = rank / static_cast<int>(grid.stages);
  return grid;
}

}  // namespace tandem
