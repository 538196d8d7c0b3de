#include "tandem/kernels/isa.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

#include <dnnl.hpp>
#endif

namespace tandem {

#if defined(__x86_64__)

namespace {

// The enumerators are masks of bits: each has those of the sets that it includes.
bool includes(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

// Linux gives a process the tile registers only when it asks for them.
bool permitted_tiles() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

Isa kernel_isa() {
  static const Isa isa = includes(dnnl::cpu_isa::avx512_core) ? Isa::avx512
                         : includes(dnnl::cpu_isa::avx2)      ? Isa::avx2
                                                              : Isa::base;
  return isa;
}

bool has_amx() {
  static const bool has = includes(dnnl::cpu_isa::avx512_core_amx) && permitted_tiles();
  return has;
}

bool has_bf16() {
  return includes(dnnl::cpu_isa::avx512_core_bf16);
}

#else

Isa kernel_isa() {
#if defined(__aarch64__)
  return Isa::neon;
#else
  return Isa::base;
#endif
}

bool has_amx() {
  return false;
}

bool has_bf16() {
  return false;
}

#endif

}  // namespace tandem
