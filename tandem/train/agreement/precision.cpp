#include "tandem/train/agreement/precision.h"

#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/config/fields.h"
#include "tandem/formats/safetensors.h"

namespace tandem {

namespace {

// How many times as long a step takes in bf16 where the CPU does not compute in it:
// without AVX-512, where LibTorch's own loops round every sum, and with it, where
// oneDNN converts. Measured with `tandem bench step`.
const char* const kTimesAsLong[] = {"20 to 30", "2 to 4"};
constexpr int64_t kComputesInBf16 = 2;

// The first rank for which bf16 costs most, and its place in kTimesAsLong, or
// kComputesInBf16.
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
    if (config.output.resume == "auto") {
      const std::string path = config.output.out + "/config.toml";
      return file_exists(path) ? read_file(path) : "";
    }
    const auto training =
        read_safetensors(config.output.resume + "/training.safetensors");
    const auto found = training.metadata.find("config");
    return found == training.metadata.end() ? "" : found->second;
  } catch (const DataError&) {
    return "";
  }
}

// The precision of the run that this one goes on with, nullopt for a new one. Rank 0
// reads it.
std::optional<Precision> precision_before(const RunConfig& config, Communicator& comm) {
  std::string found;
  if (comm.rank() == 0 && !config.output.resume.empty()) {
    found = value_in(config_before(config), find_field("precision", "precision"));
  }
  found = comm.broadcast_text(found, 0, "precision");
  for (const auto precision : {Precision::fp32, Precision::bf16, Precision::fp64}) {
    if (found == fmt::format("\"{}\"", name_of(precision))) {
      return precision;
    }
  }
  return std::nullopt;
}

void warn_of_price(const Slowest& slowest) {
  log_warning(fmt::format(
      "[exec] the CPU of rank {} does not compute in bfloat16 (it has no AVX512_BF16 or "
      "AMX, or ONEDNN_MAX_CPU_ISA forbids them): a step takes {} times as long as in "
      "fp32; use --precision fp32, or auto, which takes bf16 only where it is faster",
      slowest.rank, kTimesAsLong[slowest.place]));
}

}  // namespace

Precision settle_precision(
    const RunConfig& config, Communicator& comm, bool computes_in_bf16) {
  if (config.exec.precision != Precision::automatic &&
      config.exec.precision != Precision::bf16) {
    return config.exec.precision;
  }
  const Slowest slowest = slowest_in_bf16(computes_in_bf16, comm);
  std::optional<Precision> precision = config.exec.precision;
  if (precision == Precision::automatic) {
    precision = precision_before(config, comm);
  }
  const bool costs = slowest.place != kComputesInBf16;
  if (!precision) {
    precision = costs ? Precision::fp32 : Precision::bf16;
  }
  if (precision == Precision::bf16 && costs && comm.rank() == 0) {
    warn_of_price(slowest);
  }
  return *precision;
}

}  // namespace tandem
