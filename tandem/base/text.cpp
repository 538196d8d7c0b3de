#include "tandem/base/text.h"

#include <fmt/core.h>

namespace tandem {

std::string float_text(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

}  // namespace tandem
