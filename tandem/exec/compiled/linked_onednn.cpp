#include "tandem/exec/compiled/onednn_library.h"

extern "C" void omp_set_num_threads(int count);

namespace tandem {

std::string onednn_obstacle() {
  return "";
}

// LibTorch and oneDNN use the same OpenMP library.
void set_onednn_threads(int count) {
  omp_set_num_threads(count);
}

}  // namespace tandem
