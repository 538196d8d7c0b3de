#include "tandem/optim/group_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <type_traits>

#include "tandem/base/error.h"

namespace tandem {

namespace {

// Argument of OptimizerOptions::describe(), which collects the settings of one kind.
class SettingTable {
 public:
  // Result of add(), with the properties that describe() sets.
  class Row {
   public:
    Row(GroupSetting& setting, bool& has_effect, OptimizerKind kind)
        : setting_(setting), has_effect_(has_effect), kind_(kind) {}

    Row& between(double least, double most) {
      setting_.least = least;
      setting_.most = most;
      return *this;
    }
    Row& needs(
        const char* /*setting*/, OptimizerKind OptimizerOptions::* /*member*/,
        std::initializer_list<OptimizerKind> wanted) {
      has_effect_ = std::find(wanted.begin(), wanted.end(), kind_) != wanted.end();
      return *this;
    }
    Row& or_unset(double /*value*/) {
      return *this;
    }
    Row& formerly_unset(double /*value*/) {
      return *this;
    }
    Row& kept(ResumeRule /*rule*/ = ResumeRule::value) {
      return *this;
    }
    Row& at_the_end() {
      return *this;
    }
    Row& also(std::initializer_list<const char*> /*flags*/) {
      return *this;
    }

   private:
    GroupSetting& setting_;
    bool& has_effect_;
    OptimizerKind kind_;
  };

  explicit SettingTable(OptimizerKind kind) : kind_(kind) {}

  void section(const char* /*name*/) {}

  template <typename Value>
  Row add(const char* name, Value OptimizerOptions::*member, const char* /*help*/) {
    finish();
    setting_ = {};
    setting_.name = name;
    if constexpr (std::is_arithmetic_v<Value>) {
      setting_.member = member;
      has_effect_ = setting_.name == "lr" || setting_.name == "weight_decay";
    }
    return {setting_, has_effect_, kind_};
  }

  std::vector<GroupSetting> settings() {
    finish();
    return settings_;
  }

 private:
  void finish() {
    if (has_effect_) {
      settings_.push_back(setting_);
    }
    has_effect_ = false;
  }

  OptimizerKind kind_;
  GroupSetting setting_;
  bool has_effect_ = false;
  std::vector<GroupSetting> settings_;
};

}  // namespace

const std::vector<GroupSetting>& group_settings(OptimizerKind kind) {
  static const auto all = [] {
    std::map<OptimizerKind, std::vector<GroupSetting>> settings;
    for (const auto& row : Choices<OptimizerKind>::rows) {
      SettingTable table(row.value);
      OptimizerOptions::describe(table);
      settings[row.value] = table.settings();
    }
    return settings;
  }();
  return all.at(kind);
}

void check_group_settings(const OptimizerOptions& options) {
  for (const auto& setting : group_settings(options.kind)) {
    std::visit(
        [&](auto member) {
          using Value = std::decay_t<decltype(options.*member)>;
          const auto value = static_cast<double>(options.*member);
          const bool fits = value >= setting.least && value <= setting.most;
          // 0 is adafactor's default eps, which is outside the range of other values.
          const bool is_default =
              setting.name == "eps" && value == row_of(options.kind).eps;
          if (!std::is_same_v<Value, bool> && !fits && !is_default) {
            throw ConfigError(fmt::format(
                "[{}] {} is {}, expected {} to {}; change {}", name_of(options.kind),
                setting.name, value, setting.least, setting.most, setting.name));
          }
        },
        setting.member);
  }
}

}  // namespace tandem
