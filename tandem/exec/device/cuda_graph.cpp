#include "tandem/exec/device/cuda_graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>

namespace tandem {

namespace {

// LibTorch 2.11 marks the generators of a capture and asks its graph as long as they
// have the mark; 2.15 has none.
template <typename Generator>
auto leave_capture(Generator& generator, int /*first choice*/)
    -> decltype(void(generator.capturing_)) {
  generator.capturing_ = false;
}
template <typename Generator>
void leave_capture(Generator&, ...) {}

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
      leave_capture(*generator.first, 0);
    }
    leave_memory(*this, 0);
  }

 private:
  // The destructor gives the memory back: 2.15's, which knows of captures that did not
  // end, by itself; 2.11's once the capture counts as ended.
  template <typename Graph>
  static auto leave_memory(Graph& graph, int /*first choice*/)
      -> decltype(void(graph.capturing_to_pool_)) {}
  template <typename Graph>
  static void leave_memory(Graph& graph, ...) {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(
        graph.capture_dev_, graph.mempool_id_);
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(graph.mempool_id_);
    graph.capture_ended_ = true;
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
