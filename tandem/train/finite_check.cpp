#include "tandem/train/finite_check.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <fmt/core.h>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/comm/exchange.h"

namespace tandem {

namespace {

constexpr const char* kLowerRate = "lower --lr, or set --clip-norm";

}  // namespace

FiniteCheck::FiniteCheck(const ModelArenas& arenas, Communicator& comm)
    : state_(arenas.state()), comm_(comm), infinite_(infinite_buffers(state_)) {}

std::string FiniteCheck::first_bad() const {
  for (const auto& [name, tensor] : state_) {
    const at::Tensor values = tensor.cpu();
    const bool is_good = infinite_.count(name) > 0
                             ? !values.isnan().any().item<bool>()
                             : values.isfinite().all().item<bool>();
    if (!is_good) {
      return name;
    }
  }
  return "";
}

void FiniteCheck::check_model(int64_t step) const {
  const std::string mine = first_bad();
  const auto found = exchange_numbers({mine.empty() ? 0 : 1}, "finite check", comm_);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (found[static_cast<size_t>(rank)][0] != 0) {
      throw ValuesNotFinite(fmt::format(
          "[train] '{}' has values that are not finite after step {} on rank {}; {}",
          comm_.broadcast_text(mine, rank, "finite check"), step, rank, kLowerRate));
    }
  }
}

Error stopped_for_evaluation(const TestReport& report, const std::string& checkpoint) {
  return Error(fmt::format(
      "[train] the {} loss is not finite after step {}; {}{}", name_of(report.part),
      report.step, kLowerRate,
      checkpoint.empty() ? "" : "; the checkpoint before is " + checkpoint));
}

}  // namespace tandem
