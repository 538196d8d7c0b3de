// Replaces download.cpp and unpack.cpp in a build without libcurl or libarchive.

#include "app/fetch/download.h"
#include "tandem/base/error.h"

namespace tandem::app {

bool can_fetch() {
  return false;
}

std::string download(
    const RemoteFile&, std::vector<std::string>&, const std::string&, int64_t) {
  throw InternalError("[fetch] download() without can_fetch()");
}

void unpack(const std::string&, const RemoteSet&, const std::string&) {
  throw InternalError("[fetch] unpack() without can_fetch()");
}

}  // namespace tandem::app
