#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/kernels/isa.h"

namespace tandem {

namespace {

// Without oneDNN nothing says which of the CPU's instructions the variable still
// allows.
bool limited() {
  return get_env("ONEDNN_MAX_CPU_ISA").has_value();
}

}  // namespace

Isa kernel_isa() {
  return !limited() && __builtin_cpu_supports("avx512bw") != 0 ? Isa::avx512
                                                               : Isa::base;
}

bool has_bf16() {
  return !limited() && __builtin_cpu_supports("avx512bf16") != 0;
}

std::unique_ptr<StageExecutor> make_compiled_executor(
    Model&, ModelArenas&, const StageOptions&) {
  throw ConfigError(
      "[exec] executor compiled is not in this build, whose LibTorch is not Debian's; "
      "build with Debian's libtorch-dev, or use --executor eager");
}

std::string compiled_obstacle(const Model&, const ModelArenas&, const StageOptions&) {
  return "it is not in this build, whose LibTorch is not Debian's";
}

}  // namespace tandem
