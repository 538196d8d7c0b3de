#include "tandem/launch/host_changes.h"

#include <algorithm>
#include <iterator>

namespace tandem {

std::vector<int> HostChanges::note(const Change& attempt) {
  const auto before = excluded();
  const auto took_part = [&](int node) {
    return std::binary_search(attempt.members.begin(), attempt.members.end(), node);
  };
  for (const int node : joining_) {
    idle_starts_[node] += took_part(node) ? 0 : 1;
  }
  joining_ = attempt.joining;
  if (attempt.made_step) {
    for (const int node : attempt.members) {
      idle_starts_[node] = 0;
    }
  } else {
    for (const int node : attempt.gone) {
      ++idle_starts_[node];
    }
  }
  std::vector<int> newly;
  const auto after = excluded();
  std::set_difference(
      after.begin(), after.end(), before.begin(), before.end(),
      std::back_inserter(newly));
  return newly;
}

std::vector<int> HostChanges::excluded() const {
  std::vector<int> nodes;
  for (const auto& [node, starts] : idle_starts_) {
    if (starts >= kMostIdleStarts) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

}  // namespace tandem
