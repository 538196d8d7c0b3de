#include <ATen/Parallel.h>

#include "tandem/exec/compiled/onednn_library.h"

namespace tandem {

LoneThread::LoneThread() : before_(at::get_num_threads()) {
  set_onednn_threads(1);
}

LoneThread::~LoneThread() {
  set_onednn_threads(before_);
}

}  // namespace tandem
