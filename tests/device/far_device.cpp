#include "tests/device/far_device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#if __has_include(<ATen/detail/AcceleratorHooksInterface.h>)
#include <ATen/detail/XPUHooksInterface.h>
#endif
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iomanip>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/core/torch_compat.h"

namespace tandem {

namespace {

std::atomic<int64_t> copies{0};
// Operators that copy tensors to main memory to compute there.
thread_local int inside_operator = 0;
thread_local c10::Device current_device = kFar;

struct Usage {
  int64_t in_use = 0;
  int64_t peak = 0;
};

// Formats a size as LibTorch does.
std::string mebibytes(int64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << static_cast<double>(bytes) / (1 << 20)
       << " MiB";
  return text.str();
}

// Throws the error of CUDACachingAllocator.cpp.
void throw_out_of_memory(int64_t size, int device, const Usage& usage) {
  const int64_t capacity = far_capacity_bytes;
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ",
      mebibytes(size), ". GPU ", device, " has a total capacity of ",
      mebibytes(capacity), " of which ",
      mebibytes(std::max<int64_t>(0, capacity - usage.in_use)),
      " is free. If reserved but unallocated memory is large try setting "
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
}

class InsideOperator {
 public:
  InsideOperator() {
    ++inside_operator;
  }
  ~InsideOperator() {
    --inside_operator;
  }
  InsideOperator(const InsideOperator&) = delete;
  InsideOperator& operator=(const InsideOperator&) = delete;
};

// Address space for all tensors of the devices. New places are at its end, and free
// places are reused for tensors of the same size.
class FarMemory {
 public:
  static FarMemory& instance() {
    static FarMemory memory;
    return memory;
  }

  void* take(size_t bytes, int device) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const auto count = static_cast<int64_t>(size);
    Usage& usage = usage_[device];
    if (usage.in_use + count > far_capacity_bytes) {
      throw_out_of_memory(count, device, usage);
    }
    void* const place = place_of(size);
    taken_[place] = {size, device};
    usage.in_use += count;
    usage.peak = std::max(usage.peak, usage.in_use);
    return place;
  }
  void give_back(void* place) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    const auto found = taken_.find(place);
    const auto& [size, device] = found->second;
    free_.emplace(size, place);
    usage_[device].in_use -= static_cast<int64_t>(size);
    taken_.erase(found);
  }
  Usage usage(int device) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    return usage_[device];
  }
  void forget_peak(int device) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    usage_[device].peak = usage_[device].in_use;
  }
  // Opens the memory for the calling thread until close(); other threads wait.
  void open() {
    mutex_.lock();
    if (opened_++ == 0) {
      mprotect(start_, kBytes, PROT_READ | PROT_WRITE);
    }
  }
  void close() {
    if (--opened_ == 0) {
      mprotect(start_, kBytes, PROT_NONE);
    }
    mutex_.unlock();
  }

 private:
  static constexpr size_t kBytes = size_t{1} << 30;
  static constexpr size_t kAlignment = 256;

  // Open only while a kernel runs.
  FarMemory()
      : start_(static_cast<char*>(mmap(
            nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
            0))) {
    // Every kernel opens and closes the whole memory, and a page of 2 MB is one entry
    // to change.
    madvise(start_, kBytes, MADV_HUGEPAGE);
  }

  void* place_of(size_t size) {
    const auto found = free_.find(size);
    if (found != free_.end()) {
      void* const place = found->second;
      free_.erase(found);
      return place;
    }
    TORCH_CHECK(used_ + size <= kBytes, "the address space of devices is full");
    void* const place = start_ + used_;
    used_ += size;
    return place;
  }

  struct Taken {
    size_t size;
    int device;
  };

  std::recursive_mutex mutex_;
  char* start_;
  size_t used_ = 0;
  int opened_ = 0;
  std::map<int, Usage> usage_;
  std::map<void*, Taken> taken_;
  std::multimap<size_t, void*> free_;
};

class Open {
 public:
  Open() {
    FarMemory::instance().open();
  }
  ~Open() {
    FarMemory::instance().close();
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
};

class FarAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) TANDEM_ALLOCATE_CONST override {
    void* const place = bytes == 0
                            ? nullptr
                            : FarMemory::instance().take(bytes, current_device.index());
    return {place, place, &give_back, current_device};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &give_back;
  }
#if TANDEM_ALLOCATORS_COPY
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const Open open;
    default_copy_data(to, from, bytes);
  }
#endif

 private:
  static void give_back(void* place) {
    if (place != nullptr) {
      FarMemory::instance().give_back(place);
    }
  }
};

FarAllocator far_allocator;

struct FarGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kFar.type();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    return std::exchange(current_device, device);
  }
  c10::Device getDevice() const override {
    return current_device;
  }
  void setDevice(c10::Device device) const override {
    current_device = device;
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device = device;
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return stream;
  }
  void synchronizeStream(const c10::Stream&) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(far_wait_ms));
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return kFarDevices;
  }
};
C10_REGISTER_GUARD_IMPL(XPU, FarGuard)

#if __has_include(<ATen/detail/AcceleratorHooksInterface.h>)
// LibTorch 2.15 computes gradients on devices only if these hooks report devices.
struct FarHooks final : at::XPUHooksInterface {
  // Some versions pass one argument, others none.
  template <typename... Arguments>
  explicit FarHooks(const Arguments&...) {}

  void init() const override {}
  // LibTorch 2.6 does not have these two.
  virtual bool isBuilt() const {
    return true;
  }
  virtual bool isAvailable() const {
    return true;
  }
  bool hasXPU() const override {
    return true;
  }
  std::string showConfig() const override {
    return "";
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
};
using at::RegistererXPUHooksRegistry;
using at::XPUHooksRegistry;
C10_REGISTER_CLASS(XPUHooksRegistry, XPUHooks, FarHooks)
#endif

const c10::DispatchKeySet kKeys(c10::DispatchKey::XPU);

// Returns a tensor in main memory over the same bytes, usable while they are open.
at::Tensor near(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor
                         : at::from_blob(
                               tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                               at::TensorOptions(tensor.scalar_type()));
}

// "xpu" means the current device.
c10::optional<at::Device> on_numbered(c10::optional<at::Device> device) {
  return device && device->has_index() ? device : c10::nullopt;
}

at::Tensor far_empty(
    at::IntArrayRef sizes, c10::optional<at::ScalarType> dtype,
    c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool>,
    c10::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(on_numbered(device));
  return at::detail::empty_generic(
      sizes, &far_allocator, kKeys, dtype.value_or(at::kFloat), format);
}

at::Tensor far_empty_strided(
    at::IntArrayRef sizes, at::IntArrayRef strides, c10::optional<at::ScalarType> dtype,
    c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool>) {
  const c10::OptionalDeviceGuard guard(on_numbered(device));
  return at::detail::empty_strided_generic(
      sizes, strides, &far_allocator, kKeys, dtype.value_or(at::kFloat));
}

void copy_here(const at::Tensor& from, const at::Tensor& to) {
  const Open open;
  auto target = near(to);
  target.copy_(near(from));
}

at::Tensor far_copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (inside_operator == 0 && to.is_cpu()) {
    ++copies;
  }
  copy_here(from, to);
  return to;
}

// LibTorch 2.15 would call the kernels of its own devices of this type.
at::Tensor& far_copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (!to.is_same(from)) {
    far_copy_from(from, to, non_blocking);
  }
  return to;
}

at::Tensor far_copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (!to.sizes().equals(from.sizes())) {
    to.resize_(from.sizes());
  }
  return far_copy_from(from, to, false);
}

at::Tensor far_as_strided(
    const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
    c10::optional<int64_t> offset) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(),
      self.dtype());
  auto* impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(offset.value_or(self.storage_offset()));
  impl->set_sizes_and_strides(sizes, strides);
  return view;
}

at::Tensor far_reshape_alias(
    const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return far_as_strided(self, sizes, strides, c10::nullopt);
}

at::Tensor far_view(const at::Tensor& self, at::IntArrayRef sizes) {
  const auto shape = near(self).view(sizes);
  return far_as_strided(self, shape.sizes(), shape.strides(), c10::nullopt);
}

at::Scalar far_item(const at::Tensor& self) {
  const Open open;
  copies += inside_operator == 0 ? 1 : 0;
  return near(self).item();
}

const at::Tensor& far_resize(
    const at::Tensor& self, at::IntArrayRef sizes, c10::optional<at::MemoryFormat>) {
  TORCH_CHECK(self.numel() == 0, "the device only gives empty tensors another size");
  const auto fresh = far_empty(
      sizes, self.scalar_type(), c10::nullopt, c10::nullopt, c10::nullopt,
      c10::nullopt);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(fresh.storage());
  impl->set_sizes_contiguous(sizes);
  return self;
}

// While the object exists, an operator of the device computes on the CPU.
class Computing {
 private:
  const at::AutoDispatchBelowADInplaceOrView below_;
  const InsideOperator inside_;
  const Open open_;
};

c10::optional<at::Tensor> near_one(const c10::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? c10::make_optional(near(*tensor)) : tensor;
}

at::Tensor far_one(const at::Tensor& tensor, at::Device device) {
  return tensor.defined() ? tensor.to(device) : tensor;
}

at::Tensor far_convolution(
    const at::Tensor& input, const at::Tensor& weight,
    const c10::optional<at::Tensor>& bias, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups) {
  const Computing computing;
  return far_one(
      at::convolution(
          near(input), near(weight), near_one(bias), stride, padding, dilation,
          transposed, output_padding, groups),
      input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> far_convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
    bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  const Computing computing;
  const std::vector<int64_t> bias_sizes{weight.size(0)};
  const auto [of_input, of_weight, of_bias] = at::convolution_backward(
      near(grad), near(input), near(weight), at::IntArrayRef(bias_sizes), stride,
      padding, dilation, transposed, output_padding, groups, wanted);
  const at::Device device = input.device();
  return {
      far_one(of_input, device), far_one(of_weight, device), far_one(of_bias, device)};
}

// Changes the running statistics, which its schema does not declare: the fallback would
// leave the changes in main memory.
std::tuple<at::Tensor, at::Tensor, at::Tensor> far_batch_norm(
    const at::Tensor& input, const c10::optional<at::Tensor>& weight,
    const c10::optional<at::Tensor>& bias,
    const c10::optional<at::Tensor>& running_mean,
    const c10::optional<at::Tensor>& running_var, bool training, double momentum,
    double eps) {
  const Computing computing;
  const auto [output, mean, inverse_std] = at::native_batch_norm(
      near(input), near_one(weight), near_one(bias), near_one(running_mean),
      near_one(running_var), training, momentum, eps);
  const at::Device device = input.device();
  return {far_one(output, device), far_one(mean, device), far_one(inverse_std, device)};
}

// Throws CUDA's error if the tensors of `value` and `device` are on several devices.
// Single numbers may be in main memory.
void check_device(const c10::IValue& value, c10::optional<at::Device>& device) {
  if (value.isTensor() && value.toTensor().defined()) {
    const auto& tensor = value.toTensor();
    if (tensor.dim() > 0 || !tensor.is_cpu()) {
      device = device.value_or(tensor.device());
      TORCH_CHECK(
          tensor.device() == *device,
          "Expected all tensors to be on the same device, "
          "but found at least two devices, ",
          *device, " and ", tensor.device(), "!");
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      check_device(element, device);
    }
  }
}

// Other operators: copies tensors to the CPU, and copies the results back.
void far_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::optional<at::Device> device;
  for (const auto& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    check_device(value, device);
  }
  const Computing computing;
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, XPU, m) {
  m.impl("empty.memory_format", &far_empty);
  m.impl("empty_strided", &far_empty_strided);
  m.impl("copy_", &far_copy);
  m.impl("_copy_from", &far_copy_from);
  m.impl("_copy_from_and_resize", &far_copy_from_and_resize);
  m.impl("as_strided", &far_as_strided);
  m.impl("_reshape_alias", &far_reshape_alias);
  m.impl("view", &far_view);
  m.impl("_local_scalar_dense", &far_item);
  m.impl("resize_", &far_resize);
  m.impl("convolution_overrideable", &far_convolution);
  m.impl("convolution_backward_overrideable", &far_convolution_backward);
  m.impl("native_batch_norm", &far_batch_norm);
}

TORCH_LIBRARY_IMPL(_, XPU, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&far_fallback>());
}

}  // namespace

int64_t far_bytes_in_use(int index) {
  return FarMemory::instance().usage(index).in_use;
}

int64_t far_peak_bytes(int index) {
  return FarMemory::instance().usage(index).peak;
}

void forget_far_peak(int index) {
  FarMemory::instance().forget_peak(index);
}

int64_t copies_from_far() {
  return copies;
}

}  // namespace tandem
