#include "tandem/comm/nccl/cuda_streams.h"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tandem {

namespace {

void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
  }
}

cudaStream_t of(StreamHandle stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}

cudaEvent_t of(EventHandle event) {
  return reinterpret_cast<cudaEvent_t>(event);
}

// Gives the thread its own device back.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != device) {
      check_cuda(cudaSetDevice(device), "cudaSetDevice");
      changed_ = true;
    }
  }
  ~OnDevice() {
    if (changed_) {
      cudaSetDevice(before_);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Whoever captures a graph in another thread forbids queries in all; ours touches
// nothing of it.
class AllowedInCapture {
 public:
  AllowedInCapture() {
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeMode");
  }
  ~AllowedInCapture() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  AllowedInCapture(const AllowedInCapture&) = delete;
  AllowedInCapture& operator=(const AllowedInCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

StreamHandle create_stream(int device) {
  const OnDevice guard(device);
  cudaStream_t stream = nullptr;
  check_cuda(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return reinterpret_cast<StreamHandle>(stream);
}

EventHandle create_event(int device) {
  const OnDevice guard(device);
  cudaEvent_t event = nullptr;
  check_cuda(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return reinterpret_cast<EventHandle>(event);
}

bool is_capturing(StreamHandle stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(of(stream), &status), "cudaStreamIsCapturing");
  return status == cudaStreamCaptureStatusActive;
}

bool has_ended(EventHandle event) {
  const AllowedInCapture guard;
  const cudaError_t state = cudaEventQuery(of(event));
  if (state != cudaErrorNotReady) {
    check_cuda(state, "cudaEventQuery");
  }
  return state == cudaSuccess;
}

}  // namespace

std::shared_ptr<const DeviceStreams> make_cuda_streams(
    int device, std::function<StreamHandle()> current_stream) {
  auto streams = std::make_shared<DeviceStreams>();
  streams->use_device = [device] {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
  };
  streams->captures = [current_stream] { return is_capturing(current_stream()); };
  streams->current_stream = std::move(current_stream);
  streams->create_stream = [device] { return create_stream(device); };
  streams->destroy_stream = [](StreamHandle stream) {
    check_cuda(cudaStreamDestroy(of(stream)), "cudaStreamDestroy");
  };
  streams->create_event = [device] { return create_event(device); };
  streams->destroy_event = [](EventHandle event) {
    check_cuda(cudaEventDestroy(of(event)), "cudaEventDestroy");
  };
  streams->record = [](EventHandle event, StreamHandle stream) {
    check_cuda(cudaEventRecord(of(event), of(stream)), "cudaEventRecord");
  };
  streams->wait = [](StreamHandle stream, EventHandle event) {
    check_cuda(cudaStreamWaitEvent(of(stream), of(event), 0), "cudaStreamWaitEvent");
  };
  streams->query = &has_ended;
  return streams;
}

}  // namespace tandem
