#include "tandem/train/agreement/precision.h"

#include <ATen/ops/full.h>
#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/formats/safetensors.h"

namespace tandem {

namespace {

// What bf16 costs where the CPU does not compute in it: oneDNN converts on AVX-512,
// else LibTorch's own loops round every sum. Measured with `tandem bench step`.
const char* const kTimesAsLong[] = {"20 to 30", "2 to 4"};
constexpr int64_t kComputesInBf16 = 2;

// A rank for which bf16 costs most, and its place in kTimesAsLong, or kComputesInBf16.
struct Slowest {
  int rank = 0;
  int64_t place = kComputesInBf16;
};

Slowest slowest_in_bf16(bool computes_in_bf16, Communicator& comm) {
  const int64_t mine = computes_in_bf16              ? kComputesInBf16
                       : kernel_isa() == Isa::avx512 ? 1
                                                     : 0;
  const auto all = comm.stack(at::full({1}, mine, at::kLong), "bf16");
  Slowest slowest;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto place = all[rank].item<int64_t>();
    if (place < slowest.place) {
      slowest = {rank, place};
    }
  }
  return slowest;
}

// The config.toml of the run that this one goes on with, "" where there is none to
// read: what is wrong with a checkpoint is said when it is loaded.
std::string config_before(const RunConfig& config) {
  try {
    if (config.resume == "auto") {
      const std::string path = config.out + "/config.toml";
      return file_exists(path) ? read_file(path) : "";
    }
    const auto training = read_safetensors(config.resume + "/training.safetensors");
    const auto found = training.metadata.find("config");
    return found == training.metadata.end() ? "" : found->second;
  } catch (const DataError&) {
    return "";
  }
}

// What the run trained in that this one goes on with, "" for a new one. Rank 0 reads.
std::string precision_before(const RunConfig& config, Communicator& comm) {
  std::string found;
  if (comm.rank() == 0 && !config.resume.empty()) {
    const std::string before = value_in(config_before(config), "precision");
    for (const char* precision : {"fp32", "bf16", "fp64"}) {
      if (before == fmt::format("\"{}\"", precision)) {
        found = precision;
      }
    }
  }
  return comm.broadcast_text(found, 0, "precision");
}

void warn_of_price(const Slowest& slowest) {
  log_warning(fmt::format(
      "[exec] the CPU of rank {} does not compute in bfloat16 (it has no AVX512_BF16 "
      "or "
      "AMX, or ONEDNN_MAX_CPU_ISA forbids them): a step takes {} times as long as in "
      "fp32; use --precision fp32, or auto, which takes bf16 only where it is faster",
      slowest.rank, kTimesAsLong[slowest.place]));
}

}  // namespace

std::string settle_precision(
    const RunConfig& config, Communicator& comm, bool computes_in_bf16) {
  if (config.precision != "auto" && config.precision != "bf16") {
    return config.precision;
  }
  const Slowest slowest = slowest_in_bf16(computes_in_bf16, comm);
  std::string precision = config.precision;
  if (precision == "auto") {
    precision = precision_before(config, comm);
  }
  const bool costs = slowest.place != kComputesInBf16;
  if (precision.empty()) {
    precision = costs ? "fp32" : "bf16";
  }
  if (precision == "bf16" && costs && comm.rank() == 0) {
    warn_of_price(slowest);
  }
  return precision;
}

}  // namespace tandem
