#include "tandem/exec/device/cuda_graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>

namespace tandem {

namespace {

// Its capture_end() leaves LibTorch in the middle of a capture where CUDA calls it
// broken: allocators would go on asking an object that is gone.
class LibTorchGraph : public at::cuda::CUDAGraph {
 public:
  void give_up() {
    if (capture_ended_) {
      return;
    }
    cudaGraph_t begun = nullptr;
    cudaStreamEndCapture(capture_stream_, &begun);
    if (begun != nullptr) {
      cudaGraphDestroy(begun);
    }
    // What it says is why the capture broke, which is known.
    cudaGetLastError();
    for (const auto& generator : captured_generator_states_) {
      generator.first->capturing_ = false;
    }
    c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_);
    // The destructor gives the memory back.
    capture_ended_ = true;
  }
};

class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(const std::function<void()>& work) {
    // Other threads may go on asking whether their work has ended.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      work();
      graph_.capture_end();
    } catch (...) {
      graph_.give_up();
      throw;
    }
  }

  void launch() override {
    graph_.replay();
  }

 private:
  LibTorchGraph graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> capture_cuda_graph(const std::function<void()>& work) {
  return std::make_unique<CudaGraph>(work);
}

}  // namespace tandem
