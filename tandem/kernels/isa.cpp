#include "tandem/kernels/isa.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "tandem/base/rank_env.h"

namespace tandem {

namespace {

// Each level includes the levels before it.
enum class Level { base, avx2, avx512, bf16, amx };

// Returns the highest level that ONEDNN_MAX_CPU_ISA allows. Accepts oneDNN's names and,
// like oneDNN, ignores an unknown name.
Level level_allowed() {
  const auto limit = get_env("ONEDNN_MAX_CPU_ISA");
  const std::string name = limit.value_or("ALL");
  if (name == "SSE41" || name == "AVX") {
    return Level::base;
  }
  if (name.rfind("AVX2", 0) == 0 || name.rfind("AVX512_MIC", 0) == 0) {
    return Level::avx2;
  }
  if (name == "AVX512_CORE" || name == "AVX512_CORE_VNNI") {
    return Level::avx512;
  }
  if (name == "AVX512_CORE_BF16" || name == "AVX512_CORE_FP16" ||
      name == "AVX10_1_512") {
    return Level::bf16;
  }
  return Level::amx;
}

bool has_tile_instructions() {
  constexpr unsigned kAmxBf16 = 1U << 22U;
  constexpr unsigned kAmxTile = 1U << 24U;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0 &&
         (d & kAmxTile) != 0;
}

// Requests the tile registers, which Linux enables for a process only on request.
bool permitted_tiles() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0;
}

Level level_of_cpu() {
  if (!has_avx512()) {
    const bool avx2 =
        __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    return avx2 ? Level::avx2 : Level::base;
  }
  if (__builtin_cpu_supports("avx512bf16") == 0) {
    return Level::avx512;
  }
  return has_tile_instructions() && permitted_tiles() ? Level::amx : Level::bf16;
}

bool reaches(Level wanted) {
  static const Level level = std::min(level_of_cpu(), level_allowed());
  return level >= wanted;
}

}  // namespace

Isa kernel_isa() {
  return reaches(Level::avx512) ? Isa::avx512
         : reaches(Level::avx2) ? Isa::avx2
                                : Isa::base;
}

bool has_amx() {
  return reaches(Level::amx);
}

bool has_bf16() {
  return reaches(Level::bf16);
}

}  // namespace tandem

#else

namespace tandem {

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

}  // namespace tandem

#endif
