// A build without libcurl.

#include "app/fetch/transfer.h"
#include "tandem/base/error.h"

namespace tandem::app {

bool can_transfer() {
  return false;
}

TransferEnd transfer(const Transfer&) {
  throw InternalError("[fetch] nobody asked can_transfer()");
}

}  // namespace tandem::app
