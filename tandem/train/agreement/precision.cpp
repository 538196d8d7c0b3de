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
    const auto training =
        read_safetensors(config.output.resume + "/training.safetensors");
    const auto found = training.metadata.find("config");
    return found == training.metadata.end() ? "" : found->second;
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
  for (const auto& choice : choices<Precision>()) {
    if (choice.value != Precision::automatic &&
        found == fmt::format("\"{}\"", choice.name)) {
      return choice.value;
    }
  }
  return std::nullopt;
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
    const RunConfig& config, Communicator& comm, bool computes_in_bf16) {
  if (config.exec.precision == Precision::fp16 && comm.rank() == 0) {
    warn_of_fp16(config.exec);
  }
  if (config.exec.precision != Precision::automatic &&
      config.exec.precision != Precision::bf16) {
    return config.exec.precision;
  }
  const int without = first_without_bf16(computes_in_bf16, comm);
  std::optional<Precision> precision = config.exec.precision;
  if (precision == Precision::automatic) {
    precision = precision_before(config, comm);
  }
  if (!precision) {
    precision = without >= 0 ? Precision::fp32 : Precision::bf16;
  }
  if (precision == Precision::bf16 && without >= 0 && comm.rank() == 0) {
    warn_of_price(without);
  }
  return *precision;
}

Precision settle_precision_on_device(const RunConfig& config, Communicator& comm) {
  if (config.exec.precision == Precision::fp16 && comm.rank() == 0) {
    warn_of_fp16(config.exec);
  }
  return config.exec.precision == Precision::automatic
             ? precision_before(config, comm).value_or(Precision::fp32)
             : config.exec.precision;
}

}  // namespace tandem
