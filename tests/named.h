#pragma once

#include <ostream>
#include <utility>

namespace tandem {

/// Prints the member `name` of a test's parameter. GoogleTest uses this operator, also
/// for testing::PrintToStringParamName(), if the namespace of the parameter's type has
/// `using tandem::operator<<;`.
template <typename Named, typename = decltype(std::declval<const Named&>().name)>
std::ostream& operator<<(std::ostream& out, const Named& named) {
  return out << named.name;
}

}  // namespace tandem
