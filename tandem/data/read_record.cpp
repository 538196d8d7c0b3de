#include "tandem/data/read_record.h"

#include <c10/core/GradMode.h>

namespace tandem {

namespace {

const std::shared_ptr<ReadRecord>& own_record() {
  static thread_local const auto record = std::make_shared<ReadRecord>();
  return record;
}

}  // namespace

std::shared_ptr<const ReadRecord> reads_of_this_thread() {
  return own_record();
}

void record_read(const SamplerOptions& sampler, int64_t epoch, int64_t batch_size) {
  if (c10::GradMode::is_enabled()) {
    auto& record = *own_record();
    record = {sampler, epoch, batch_size, record.num_reads + 1};
  }
}

}  // namespace tandem
