#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tandem/config/options/optimizer_options.h"

namespace tandem {

/// A setting of an optimizer that can differ between parameter groups.
struct GroupSetting {
  using Member = std::variant<
      double OptimizerOptions::*, int64_t OptimizerOptions::*,
      bool OptimizerOptions::*>;

  std::string name;
  Member member;
  // Range of a number, limits included.
  double least = 0;
  double most = 0;
};

/// Returns lr, weight_decay and the settings that have an effect only with some
/// optimizers, `kind` among them.
const std::vector<GroupSetting>& group_settings(OptimizerKind kind);

/// Calls `visitor(name, value)` for each of group_settings(). `value` is a reference to
/// a member of `options`.
template <typename Options, typename Visitor>
void visit_settings(Options& options, Visitor&& visitor) {
  for (const auto& setting : group_settings(options.kind)) {
    std::visit(
        [&](auto member) { visitor(setting.name, options.*member); }, setting.member);
  }
}

/// Throws ConfigError with the first setting that is out of range.
void check_group_settings(const OptimizerOptions& options);

}  // namespace tandem
