#include "tandem/config/loss_setting.h"

#include <algorithm>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

void check_loss(const std::string& loss) {
  const std::vector<std::string> choices = {
      "auto", "cross_entropy", "nll", "softmax_cross_entropy"};
  if (std::find(choices.begin(), choices.end(), loss) != choices.end()) {
    return;
  }
  if (loss == "mse") {
    throw ConfigError(
        "[config] loss mse compares outputs with numbers, and every sample's target "
        "here is a class; use --loss " +
        join(choices));
  }
  throw ConfigError(
      "[config] loss cannot be '" + loss + "'" + did_you_mean(loss, choices) +
      "; choose one of " + join(choices));
}

}  // namespace tandem
