#include "tandem/config/foreign_flags.h"

#include <algorithm>

namespace tandem {

namespace {

struct Habit {
  const char* name;
  const char* advice;
};

constexpr const char* kNothingToCopy =
    "a data set is copied to a GPU once, or each batch from pinned memory without "
    "waiting, and elsewhere there is nothing to copy; leave it out";

constexpr Habit kHabits[] = {
    {"learning_rate", "use lr"},
    {"num_epochs", "use epochs"},
    {"max_epochs", "use epochs"},
    {"world_size", "use nproc for the ranks of this host, and nnodes for hosts"},
    {"gpus", "use nproc, a rank for each GPU, and device = \"cuda\""},
    {"num_workers",
     "the loader needs no workers: it prepares a batch in microseconds; leave it out"},
    {"workers",
     "the loader needs no workers: it prepares a batch in microseconds; leave it out"},
    {"pin_memory", kNothingToCopy},
    {"non_blocking", kNothingToCopy},
    {"shuffle", "training data is shuffled; use reshuffle = false for one order"},
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
  for (const auto& habit : kHabits) {
    if (key == habit.name) {
      return std::string("; ") + habit.advice;
    }
  }
  return "";
}

}  // namespace tandem
