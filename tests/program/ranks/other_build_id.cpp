// Linked before the library's: the program says that it is of another build.

#include "tandem/base/build_id.h"

namespace tandem {

std::string build_id() {
  return "0.1.0 (of another build)";
}

}  // namespace tandem
