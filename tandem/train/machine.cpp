#include "tandem/train/machine.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tandem/base/text.h"
#include "tandem/comm/exchange.h"
#include "tandem/kernels/isa.h"

namespace tandem {

namespace {

// Returns the instruction set that LibTorch uses. The variable ATEN_CPU_CAPABILITY
// limits it.
std::string libtorch_isa() {
  static const std::string kStart = "CPU capability usage: ";
  const std::string config = at::show_config();
  const size_t start = config.find(kStart);
  return start == std::string::npos
             ? "unknown"
             : config.substr(
                   start + kStart.size(),
                   config.find('\n', start) - start - kStart.size());
}

// Returns the instruction set of oneDNN and of tandem's kernels. The variable
// ONEDNN_MAX_CPU_ISA limits it.
std::string kernels_isa() {
  switch (kernel_isa()) {
    case Isa::avx512:
      return has_amx() ? "AMX" : has_bf16() ? "AVX512_BF16" : "AVX512";
    case Isa::avx2:
      return "AVX2";
    case Isa::neon:
      return "NEON";
    case Isa::base:
      break;
  }
  return "base";
}

// Returns the different texts, in order.
std::string different(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return join(texts, " and ");
}

}  // namespace

Machine machine_of(Communicator& comm) {
  Machine machine;
  machine.threads =
      different(gather_texts(std::to_string(at::get_num_threads()), "threads", comm));
  machine.instruction_sets = different(gather_texts(
      libtorch_isa() + " with kernels for " + kernels_isa(), "instruction sets", comm));
  return machine;
}

std::string machine_changes(
    const Machine& earlier, const Machine& now, bool depends_on_threads) {
  std::vector<std::string> changes;
  if (depends_on_threads && !earlier.threads.empty() &&
      earlier.threads != now.threads) {
    changes.push_back(
        now.threads + (now.threads == "1" ? " thread" : " threads") + " instead of " +
        earlier.threads);
  }
  if (!earlier.instruction_sets.empty() &&
      earlier.instruction_sets != now.instruction_sets) {
    changes.push_back(
        "instruction set " + now.instruction_sets + " instead of " +
        earlier.instruction_sets);
  }
  return join(changes);
}

}  // namespace tandem
