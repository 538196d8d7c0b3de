#include "tandem/train/agreement/precision.h"

#include <fmt/core.h>

#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/comm/exchange.h"
#include "tandem/config/fields.h"
#include "tandem/formats/safetensors.h"

namespace tandem {

namespace {

// Returns the first rank whose CPU does not compute in bfloat16, or -1.
int first_without_bf16(bool computes_in_bf16, Communicator& comm) {
  const int first = static_cast<int>(reduce_count(
      computes_in_bf16 ? comm.size() : comm.rank(), ReduceOp::min, "bf16", comm));
  return first < comm.size() ? first : -1;
}

// Returns the config.toml of the run to resume, or "" if there is none. Ignores errors,
// because loading the checkpoint reports them.
std::string config_before(const RunConfig& config) {
  try {
    if (config.output.resume == "auto") {
      const std::string path = config.output.out + "/config.toml";
      return file_exists(path) ? read_file(path) : "";
    }
    return read_safetensors(config.output.resume + "/training.safetensors")
        .metadata["config"];
  } catch (const DataError&) {
    return "";
  }
}

// Returns the precision of the run to resume; nullopt for a new run. Only rank 0 reads
// files.
std::optional<Precision> precision_before(const RunConfig& config, Communicator& comm) {
  std::string found;
  if (comm.rank() == 0 && !config.output.resume.empty()) {
    found = value_in(config_before(config), find_field("precision", "precision"));
  }
  found = comm.broadcast_text(found, 0, "precision");
  // The value is in quotes.
  const auto precision =
      found.size() < 2 ? std::nullopt
                       : find_choice<Precision>(found.substr(1, found.size() - 2));
  return precision == Precision::automatic ? std::nullopt : precision;
}

// `tandem bench step` measured the factors in the message.
void warn_of_price(int rank) {
  log_warning(fmt::format(
      "[exec] bf16 is slower than fp32 on the CPU of rank {}, which does not compute "
      "in bfloat16 (it has no AVX512_BF16 or AMX, or ONEDNN_MAX_CPU_ISA forbids them): "
      "executor compiled rounds float32 values and takes up to 1.3 times as long, "
      "executor eager up to 30 times; use --precision fp32, or auto, which chooses "
      "bf16 only if it is faster",
      rank));
}

void warn_of_fp16(const ExecOptions& exec) {
  log_warning(
      "[exec] fp16 is not faster: it computes float32 products of values rounded to "
      "float16, to reproduce mixed precision; use --precision fp32 or auto for speed");
  if (exec.loss_scale == ExecOptions::kNoScale) {
    log_warning(
        "[exec] without a loss scale, gradients below 6e-8 become 0 in fp16; use "
        "--loss-scale dynamic");
  }
}

}  // namespace

Precision settle_precision(
    const RunConfig& config, const Placement& placement, Communicator& comm,
    bool computes_in_bf16) {
  std::optional<Precision> precision = config.exec.precision;
  if (precision == Precision::fp16 && comm.rank() == 0) {
    warn_of_fp16(config.exec);
  }
  if (precision == Precision::automatic) {
    precision = precision_before(config, comm);
  }
  if (placement.is_elsewhere()) {
    return precision.value_or(Precision::fp32);
  }
  if (precision && precision != Precision::bf16) {
    return *precision;
  }
  const int without = first_without_bf16(computes_in_bf16, comm);
  if (!precision) {
    return without >= 0 ? Precision::fp32 : Precision::bf16;
  }
  if (without >= 0 && comm.rank() == 0) {
    warn_of_price(without);
  }
  return Precision::bf16;
}

}  // namespace tandem
