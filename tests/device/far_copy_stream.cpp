#include "tests/device/far_copy_stream.h"

#include <map>

#include "tandem/base/error.h"
#include "tests/cuda/emulator/block_emulator.h"

namespace tandem {

namespace {

class FarCopyStream : public CopyStream {
 public:
  void copy(const at::Tensor& from, const at::Tensor& to, size_t number) override {
    const auto unread = unread_.find(number);
    TANDEM_CHECK(
        unread == unread_.end(),
        "a copy to a place that a kernel was still to read; release it behind the "
        "kernel");
    to.copy_(from, /*non_blocking=*/true);
    unread_[number] = emulator::launches;
  }

  void release(size_t number) override {
    const auto unread = unread_.find(number);
    TANDEM_CHECK(
        unread != unread_.end() && emulator::launches > unread->second,
        "a place was released before a kernel had read it");
    unread_.erase(unread);
  }

 private:
  // Places that were written, and how many kernels had been launched by then.
  std::map<size_t, int64_t> unread_;
};

}  // namespace

std::unique_ptr<CopyStream> make_far_copy_stream() {
  return std::make_unique<FarCopyStream>();
}

}  // namespace tandem
