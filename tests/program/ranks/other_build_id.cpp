// Linked before the library's build id, so that the program has the id of another
// build.

#include "tandem/base/store/greeting.h"

namespace tandem {

std::string build_id() {
  return "0.1.0 (of another build)";
}

}  // namespace tandem
