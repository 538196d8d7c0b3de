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
#include <fmt/core.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/torch_compat.h"
#include "tandem/exec/device/cuda_kernels.h"
#include "tests/cuda/emulator/block_emulator.h"
#include "tests/device/far_copy_stream.h"

namespace tandem {

namespace {

std::atomic<int64_t> copies{0};
std::atomic<int64_t> copies_there{0};
std::atomic<int64_t> waited_copies_there{0};
std::atomic<int64_t> graph_launches{0};
// Operators that copy tensors to main memory to compute there.
thread_local int inside_operator = 0;
thread_local c10::Device current_device = kFar;

struct Usage {
  int64_t in_use = 0;
  int64_t peak = 0;
};

// In LibTorch's words.
std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// As CUDACachingAllocator.cpp does.
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

// What is captured on each device: kernels and operators, to be run again; null:
// nothing. Of all threads, since LibTorch before 2.1 computes gradients in one of its
// own while the caller waits.
using Work = std::vector<std::function<void()>>;
std::array<Work*, kFarDevices> captured_work{};

// Of the calling thread's device.
Work* capturing() {
  return captured_work.at(static_cast<size_t>(current_device.index()));
}

void check_not_captured(const char* what) {
  TORCH_CHECK(
      capturing() == nullptr || inside_operator > 0, what,
      ": operation not permitted when stream is capturing");
}

// Address space for all tensors of the devices; a place is taken from the front and
// used again by those of the same size.
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
    if (of_graphs_.count(place) == 0) {
      free_.emplace(size, place);
    }
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
  // All that is in use of a device, by its place.
  using Contents = std::map<char*, std::vector<char>>;
  Contents contents(int device) {
    Contents all;
    open();
    for (const auto& [place, taken] : taken_) {
      auto* const from = static_cast<char*>(place);
      if (taken.device == device) {
        all[from] = std::vector<char>(from, from + taken.size);
      }
    }
    close();
    return all;
  }
  void put_back(const Contents& contents) {
    open();
    for (const auto& [place, bytes] : contents) {
      std::copy(bytes.begin(), bytes.end(), place);
    }
    close();
  }
  void run_opened(const std::function<void()>& launch) {
    open();
    try {
      launch();
    } catch (...) {
      close();
      throw;
    }
    close();
  }
  // For the calling thread, until it closes it: others wait.
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

  // Open while a kernel runs, and only then.
  FarMemory()
      : start_(static_cast<char*>(mmap(
            nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
            0))) {
    // Every kernel opens and closes all of it: a page of 2 MB is one entry to change.
    madvise(start_, kBytes, MADV_HUGEPAGE);
    emulator::set_around_launch([this](const std::function<void()>& launch) {
      run_opened(launch);
      if (capturing() != nullptr) {
        capturing()->push_back([this, launch] { run_opened(launch); });
      }
    });
  }

  void* place_of(size_t size) {
    const auto found = free_.find(size);
    if (capturing() == nullptr && found != free_.end()) {
      void* const place = found->second;
      free_.erase(found);
      return place;
    }
    TANDEM_CHECK(used_ + size <= kBytes, "the address space of devices is full");
    void* const place = start_ + used_;
    used_ += size;
    if (capturing() != nullptr) {
      of_graphs_.insert(place);
    }
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
  // Taken in a capture.
  std::set<void*> of_graphs_;
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
// LibTorch 2.15 computes gradients on devices only where it knows that there are some.
struct FarHooks final : at::XPUHooksInterface {
  // Of some versions one, of others none.
  template <typename... Arguments>
  explicit FarHooks(const Arguments&...) {}

  void init() const override {}
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
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

// A tensor in main memory over the same bytes; of use while they are open.
at::Tensor near(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor
                         : at::from_blob(
                               tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                               at::TensorOptions(tensor.scalar_type()));
}

// "xpu" means the current one.
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

// Main memory that a device copies from without the host waiting.
class HostWords {
 public:
  static HostWords& instance() {
    static HostWords words;
    return words;
  }
  at::Tensor take(int64_t count) {
    auto* const words = new int64_t[static_cast<size_t>(count)];
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_.insert(words);
    return at::from_blob(
        words, {count}, [this](void* at) { give_back(at); }, at::kLong);
  }
  bool has(const at::Tensor& tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return taken_.count(tensor.data_ptr()) > 0;
  }

  // A device is still to read `from`, for which the host does not wait. As long as that
  // is so nobody else gets the memory.
  void will_be_read(const at::Tensor& from) {
    const std::lock_guard<std::mutex> lock(reading_mutex_);
    const auto before = reading_.extract(from.data_ptr());
    if (before) {
      check_unchanged(before.mapped());
    }
    const auto* bytes = static_cast<const char*>(from.data_ptr());
    reading_[from.data_ptr()] = {from, std::vector<char>(bytes, bytes + from.nbytes())};
  }
  // The host has waited for the devices.
  void were_read() {
    std::map<void*, Reading> done;
    const std::lock_guard<std::mutex> lock(reading_mutex_);
    done.swap(reading_);
    for (const auto& [at, reading] : done) {
      check_unchanged(reading);
    }
  }

 private:
  struct Reading {
    at::Tensor from;
    std::vector<char> content;
  };

  static void check_unchanged(const Reading& reading) {
    TANDEM_CHECK(
        std::equal(
            reading.content.begin(), reading.content.end(),
            static_cast<const char*>(reading.from.data_ptr())),
        "main memory was changed that a device was still to read; wait for it, or take "
        "other memory");
  }

  void give_back(void* at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken_.erase(at);
    delete[] static_cast<int64_t*>(at);
  }

  std::mutex mutex_;
  std::set<void*> taken_;
  // Locked before mutex_: a tensor that goes gives its memory back.
  std::mutex reading_mutex_;
  std::map<void*, Reading> reading_;
};

void copy_here(const at::Tensor& from, const at::Tensor& to) {
  const Open open;
  auto target = near(to);
  target.copy_(near(from));
}

at::Tensor far_copy_from(
    const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool leaves_device = from.is_cpu() || to.is_cpu();
  if (inside_operator == 0) {
    if (leaves_device) {
      check_not_captured("copy");
    }
    if (from.is_cpu()) {
      ++copies_there;
      const bool waits = !non_blocking || !HostWords::instance().has(from);
      waited_copies_there += waits ? 1 : 0;
      if (!waits) {
        HostWords::instance().will_be_read(from);
      }
    } else if (to.is_cpu()) {
      ++copies;
      HostWords::instance().were_read();
    }
    if (capturing() != nullptr) {
      capturing()->push_back([from, to] { copy_here(from, to); });
    }
  }
  copy_here(from, to);
  return to;
}

// LibTorch 2.15 would ask for the kernels of its own devices of this type.
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
  check_not_captured("item");
  const Open open;
  if (inside_operator == 0) {
    ++copies;
    HostWords::instance().were_read();
  }
  return near(self).item();
}

const at::Tensor& far_resize(
    const at::Tensor& self, at::IntArrayRef sizes, c10::optional<at::MemoryFormat>) {
  TANDEM_CHECK(self.numel() == 0, "the device only gives empty tensors another size");
  const auto fresh = far_empty(
      sizes, self.scalar_type(), c10::nullopt, c10::nullopt, c10::nullopt,
      c10::nullopt);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(fresh.storage());
  impl->set_sizes_contiguous(sizes);
  return self;
}

// Runs an operator's `compute`, whose results are new tensors of the device.
template <typename Compute>
std::vector<at::Tensor> run_operator(const Compute& compute) {
  const auto run = [compute] {
    const at::AutoDispatchBelowADInplaceOrView below;
    const InsideOperator inside;
    const Open open;
    return compute();
  };
  auto results = run();
  if (capturing() != nullptr && inside_operator == 0) {
    capturing()->push_back([run, results] {
      const auto again = run();
      for (size_t i = 0; i < results.size(); ++i) {
        if (results[i].defined() && !results[i].is_same(again[i])) {
          copy_here(again[i], results[i]);
        }
      }
    });
  }
  return results;
}

at::Tensor far_convolution(
    const at::Tensor& input, const at::Tensor& weight,
    const c10::optional<at::Tensor>& bias, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups) {
  return run_operator([=, stride = stride.vec(), padding = padding.vec(),
                       dilation = dilation.vec(),
                       output_padding = output_padding.vec()] {
    c10::optional<at::Tensor> near_bias;
    if (bias && bias->defined()) {
      near_bias = near(*bias);
    }
    return std::vector<at::Tensor>{at::convolution(
                                       near(input), near(weight), near_bias, stride,
                                       padding, dilation, transposed, output_padding,
                                       groups)
                                       .to(input.device())};
  })[0];
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> far_convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
    bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  const auto far =
      run_operator([=, stride = stride.vec(), padding = padding.vec(),
                    dilation = dilation.vec(), output_padding = output_padding.vec()] {
        const std::vector<int64_t> bias_sizes{weight.size(0)};
        const auto gradients = at::convolution_backward(
            near(grad), near(input), near(weight), at::IntArrayRef(bias_sizes), stride,
            padding, dilation, transposed, output_padding, groups, wanted);
        std::vector<at::Tensor> there{
            std::get<0>(gradients), std::get<1>(gradients), std::get<2>(gradients)};
        for (auto& tensor : there) {
          tensor = tensor.defined() ? tensor.to(input.device()) : tensor;
        }
        return there;
      });
  return {far[0], far[1], far[2]};
}

std::vector<at::Tensor> tensors_of(
    const c10::OperatorHandle& op, const c10::IValue& value) {
  if (value.isTensorList()) {
    return value.toTensorVector();
  }
  if (!value.isTensor()) {
    // Of the operator that the host called.
    TORCH_CHECK(
        capturing() == nullptr || inside_operator > 1, op.schema().name(),
        ": operation not permitted when stream is capturing");
    return {};
  }
  return {value.toTensor()};
}

// Its running statistics are changed, which its schema does not say: the fallback would
// leave them in main memory.
std::tuple<at::Tensor, at::Tensor, at::Tensor> far_batch_norm(
    const at::Tensor& input, const c10::optional<at::Tensor>& weight,
    const c10::optional<at::Tensor>& bias,
    const c10::optional<at::Tensor>& running_mean,
    const c10::optional<at::Tensor>& running_var, bool training, double momentum,
    double eps) {
  const auto near_one = [](const c10::optional<at::Tensor>& tensor) {
    return tensor && tensor->defined() ? c10::make_optional(near(*tensor)) : tensor;
  };
  const auto far = run_operator([=] {
    const auto [output, mean, inverse_std] = at::native_batch_norm(
        near(input), near_one(weight), near_one(bias), near_one(running_mean),
        near_one(running_var), training, momentum, eps);
    return std::vector<at::Tensor>{
        output.to(input.device()), mean.to(input.device()),
        inverse_std.to(input.device())};
  });
  return {far[0], far[1], far[2]};
}

// All others: tensors are copied to main memory and what comes out is copied back.
void far_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto takes = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const auto gives = static_cast<std::ptrdiff_t>(op.schema().returns().size());
  const torch::jit::Stack arguments(stack->end() - takes, stack->end());
  // Shared: the operator may run again, later.
  const auto results = std::make_shared<torch::jit::Stack>();
  // Those in place give what they were given.
  run_operator([op, arguments, gives, results] {
    torch::jit::Stack values = arguments;
    at::native::cpu_fallback(op, &values);
    results->assign(values.end() - gives, values.end());
    std::vector<at::Tensor> tensors;
    for (const auto& value : *results) {
      const auto of_value = tensors_of(op, value);
      tensors.insert(tensors.end(), of_value.begin(), of_value.end());
    }
    return tensors;
  });
  stack->erase(stack->end() - takes, stack->end());
  stack->insert(stack->end(), results->begin(), results->end());
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

class FarGraph : public DeviceGraph {
 public:
  explicit FarGraph(Work work) : work_(std::move(work)) {}

  void launch() override {
    ++graph_launches;
    for (const auto& one : work_) {
      one();
    }
  }

 private:
  Work work_;
};

// Of the calling thread's device, whose memory is as before behind it.
class Capture {
 public:
  Capture()
      : device_(static_cast<size_t>(current_device.index())),
        before_(FarMemory::instance().contents(static_cast<int>(device_))) {
    TANDEM_CHECK(capturing() == nullptr, "a capture in a capture");
    captured_work[device_] = &work_;
  }
  ~Capture() {
    captured_work[device_] = nullptr;
    FarMemory::instance().put_back(before_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::unique_ptr<DeviceGraph> end() {
    return std::make_unique<FarGraph>(std::move(work_));
  }

 private:
  size_t device_;
  FarMemory::Contents before_;
  Work work_;
};

std::unique_ptr<DeviceGraph> capture_far(const std::function<void()>& work) {
  Capture capture;
  work();
  return capture.end();
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

std::shared_ptr<const DeviceKernels> far_kernels(const AroundCapture& around) {
  return make_cuda_kernels(
      {[] { return cuda::Stream(); }, [] { return far_free_bytes.load(); },
       [](int64_t count) { return HostWords::instance().take(count); },
       &make_far_copy_stream,
       [around](const std::function<void()>& work) {
         return capture_far([&] { around(work); });
       }});
}

std::shared_ptr<const DeviceKernels> far_kernels() {
  return far_kernels([](const std::function<void()>& work) { work(); });
}

void note_in_far_capture(std::function<void()> one) {
  TANDEM_CHECK(capturing() != nullptr, "there is no capture");
  capturing()->push_back(std::move(one));
}

void open_far_memory(const std::function<void()>& work) {
  FarMemory::instance().run_opened(work);
}

int64_t copies_to_far() {
  return copies_there;
}

int64_t waited_copies_to_far() {
  return waited_copies_there;
}

int64_t launches_of_far_graphs() {
  return graph_launches;
}

int64_t copies_from_far() {
  return copies;
}

}  // namespace tandem
