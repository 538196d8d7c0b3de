#include "tandem/config/foreign_flags.h"

#include <algorithm>

namespace tandem {

namespace {

struct ForeignFlag {
  const char* name;
  const char* advice;
};

constexpr const char* kNothingToCopy =
    "copies to a GPU come from pinned memory and do not block; leave it out";
constexpr const char* kNoWorkers =
    "the loader needs no workers: it prepares a batch in microseconds; leave it out";

constexpr ForeignFlag kForeignFlags[] = {
    {"learning_rate", "use lr"},
    {"num_epochs", "use epochs"},
    {"max_epochs", "use epochs"},
    {"world_size", "use nproc for ranks of this host, and nnodes for hosts"},
    {"gpus", "use nproc, with a rank for each GPU, and device = \"cuda\""},
    {"num_workers", kNoWorkers},
    {"workers", kNoWorkers},
    {"pin_memory", kNothingToCopy},
    {"non_blocking", kNothingToCopy},
    {"shuffle",
     "training data is always shuffled; use reshuffle = false for the same order in "
     "every epoch"},
    {"save_dir", "use out"},
    {"output_dir", "use out"},
    {"log_interval", "use log_every"},
    {"dataset", "use data"},
    {"amp", "use precision = \"bf16\", or \"fp16\" with loss_scale = \"dynamic\""},
    {"gradient_accumulation_steps", "use accumulate"},
    {"memory_format", "use channels_last, with executor = \"eager\""},
};

}  // namespace

std::string advice_on(const std::string& name) {
  std::string key = name;
  key.erase(0, key.find_first_not_of('-'));
  std::replace(key.begin(), key.end(), '-', '_');
  for (const auto& flag : kForeignFlags) {
    if (key == flag.name) {
      return std::string("; ") + flag.advice;
    }
  }
  return "";
}

}  // namespace tandem
