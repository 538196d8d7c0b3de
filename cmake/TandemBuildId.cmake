# Writes build_id.cpp with the version and a hash of the library's sources. Usage:
#   cmake -DROOT=... -DVERSION=... -DTORCH=... -DOUT=... -P TandemBuildId.cmake
file(GLOB_RECURSE sources RELATIVE ${ROOT}
  ${ROOT}/tandem/*.cpp ${ROOT}/tandem/*.cu ${ROOT}/tandem/*.h)
list(SORT sources)
set(all "${TORCH}")
foreach(source ${sources})
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND all "\n${source} ${hash}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 12 id)
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [=[
#include "tandem/base/store/greeting.h"

namespace tandem {

std::string build_id() {
  return "@VERSION@ (@id@)";
}

}  // namespace tandem
]=])
