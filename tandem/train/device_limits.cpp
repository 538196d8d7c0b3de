#include "tandem/train/device_limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem {

namespace {

constexpr const char* kTriedToAllocate = "Tried to allocate ";

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Formats a size as LibTorch does.
std::string size_text(int64_t bytes) {
  constexpr double kMebibyte = 1 << 20;
  const double mebibytes = static_cast<double>(bytes) / kMebibyte;
  return mebibytes < 1024 ? fmt::format("{:.2f} MiB", mebibytes)
                          : fmt::format("{:.2f} GiB", mebibytes / 1024);
}

// Returns a text such as "2.00 GiB was requested and "; "" if the message contains no
// size, as in errors of cuBLAS. In LibTorch 1.13, " (GPU 0; ..." follows the size; in
// later versions, ". GPU 0 has ..." follows.
std::string wanted(const std::string& text) {
  const size_t at = text.find(kTriedToAllocate);
  if (at == std::string::npos) {
    return "";
  }
  const size_t begin = at + std::string(kTriedToAllocate).size();
  const size_t end = std::min(
      {text.find(". ", begin), text.find(" (", begin), text.find('\n', begin)});
  return text.substr(begin, end == std::string::npos ? end : end - begin) +
         " was requested and ";
}

}  // namespace

std::string device_obstacle(const RunConfig& config) {
  const auto kind = config.strategy.kind;
  if (config.strategy.shard >= Sharding::gradients) {
    return std::string("--shard ") + name_of(config.strategy.shard) +
           " releases only main memory";
  }
  return has_trait(kind, kSharesParameters) ? std::string("ranks of ") + name_of(kind) +
                                                  " share parameters in main memory"
                                            : "";
}

std::string precision_obstacle(Precision precision, const std::string& capability) {
  // Ampere, the first architecture whose tensor cores support tf32 and bf16.
  constexpr int kLeastMajor = 8;
  const bool needs_it = precision == Precision::tf32 || precision == Precision::bf16;
  if (!needs_it || std::atoi(capability.c_str()) >= kLeastMajor) {
    return "";
  }
  return fmt::format(
      "precision {} needs compute capability {}.0, and it has {}; use --precision fp16 "
      "or fp32",
      name_of(precision), kLeastMajor, capability);
}

void rethrow_device_error(
    const c10::Error& error, const Placement& placement, const std::string& advice) {
  const std::string text = error.what_without_backtrace();
  const bool is_out_of_memory =
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      has(text, "CUDA error: out of memory") || has(text, "STATUS_ALLOC_FAILED");
  if (!placement.device || !is_out_of_memory) {
    throw;
  }
  const int64_t free = placement.free_bytes ? placement.free_bytes() : 0;
  throw Error(fmt::format(
      "[device] {} does not have enough memory: {}{} is free; {}",
      placement.device->str(), wanted(text), size_text(free), advice));
}

std::string smaller_batches(const std::string& flag, int64_t batch_size) {
  return batch_size > 1
             ? fmt::format("lower {} from {} to {}", flag, batch_size, batch_size / 2)
             : fmt::format("choose a smaller --model, or --device cpu ({} is 1)", flag);
}

}  // namespace tandem
