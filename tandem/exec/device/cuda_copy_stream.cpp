#include "tandem/exec/device/cuda_copy_stream.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

namespace tandem {

namespace {

class CudaCopyStream : public CopyStream {
 public:
  explicit CudaCopyStream(c10::DeviceIndex index)
      : index_(index), stream_(c10::cuda::getStreamFromPool(false, index)) {}

  // LibTorch's allocator of pinned memory notes that this stream reads `from`.
  void copy(const at::Tensor& from, const at::Tensor& to, size_t number) override {
    const auto current = c10::cuda::getCurrentCUDAStream(index_);
    {
      const c10::cuda::CUDAStreamGuard here(stream_);
      released_[number].block(stream_);
      to.copy_(from, /*non_blocking=*/true);
      copied_.record(stream_);
    }
    copied_.block(current);
  }

  void release(size_t number) override {
    released_[number].record(c10::cuda::getCurrentCUDAStream(index_));
  }

 private:
  c10::DeviceIndex index_;
  c10::cuda::CUDAStream stream_;
  // An event that was never recorded keeps nobody waiting.
  std::map<size_t, at::cuda::CUDAEvent> released_;
  at::cuda::CUDAEvent copied_;
};

}  // namespace

std::unique_ptr<CopyStream> make_cuda_copy_stream(int index) {
  return std::make_unique<CudaCopyStream>(static_cast<c10::DeviceIndex>(index));
}

}  // namespace tandem
