#include "tandem/core/arena.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr int64_t kAlignmentBytes = 64;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t aligned_numel(at::ScalarType dtype) {
  return kAlignmentBytes / static_cast<int64_t>(c10::elementSize(dtype));
}

// Returns a view that autograd does not track. The optimizer and the reducer write to
// such views in place, which autograd forbids for tracked views of a leaf tensor.
at::Tensor untracked_view(
    const at::Tensor& flat, const std::vector<int64_t>& dims,
    const std::vector<int64_t>& strides, int64_t offset) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return flat.as_strided(dims, strides, flat.storage_offset() + offset);
}

std::string text(const std::vector<int64_t>& values) {
  std::string list;
  for (const int64_t value : values) {
    list += (list.empty() ? "" : "x") + std::to_string(value);
  }
  return list;
}

std::shared_ptr<const ArenaLayout> lay_out(
    std::vector<NamedTensor> tensors, const ModelArenaOptions& options) {
  std::set<const void*> seen;
  std::vector<NamedTensor> unique;
  for (auto& entry : tensors) {
    if (seen.insert(entry.tensor.unsafeGetTensorImpl()).second) {
      unique.push_back(entry);
    }
  }
  const std::vector<NamedTensor> reversed(unique.rbegin(), unique.rend());
  std::vector<int64_t> groups;
  for (const auto& entry : reversed) {
    groups.push_back(options.group_of ? options.group_of(entry) : 0);
  }
  return std::make_shared<ArenaLayout>(
      reversed, groups, options.divisor, options.device, options.bucket_bytes);
}

// Copies the tensors' values into the arena if `copy` is true, then makes the tensors
// views of the arena.
void move_into(Arena& arena, const std::vector<NamedTensor>& tensors, bool copy) {
  std::map<std::string, size_t> slot_of;
  for (size_t i = 0; i < arena.layout().slots().size(); ++i) {
    slot_of[arena.layout().slots()[i].name] = i;
  }
  for (const auto& entry : tensors) {
    const auto found = slot_of.find(entry.name);
    if (found != slot_of.end()) {
      auto view = arena.view(found->second);
      const at::AutoDispatchBelowADInplaceOrView guard;
      if (copy) {
        view.copy_(entry.tensor.detach());
      }
      at::Tensor(entry.tensor).set_data(view);
    }
  }
}

}  // namespace

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : named) {
    tensors.push_back(entry.tensor);
  }
  return tensors;
}

ArenaRange Bucket::part(int index, int count) const {
  if (range.size() % count != 0) {
    throw ConfigError(
        "[arena] a bucket has " + std::to_string(range.size()) +
        " elements, expected a multiple of the " + std::to_string(count) +
        " ranks that divide it; set ModelArenaOptions::divisor");
  }
  const int64_t size = range.size() / count;
  const int64_t begin = range.begin + index * size;
  return {range.segment, begin, begin + size};
}

ArenaLayout::ArenaLayout(
    const std::vector<NamedTensor>& tensors, const std::vector<int64_t>& groups,
    int64_t divisor, c10::optional<at::Device> device, int64_t bucket_bytes) {
  TANDEM_CHECK(divisor > 0, "the divisor of an arena must be positive");
  if (bucket_bytes < 0) {
    throw ConfigError(
        "[arena] bucket_bytes is " + std::to_string(bucket_bytes) +
        ", expected 0 or more; change --bucket-bytes");
  }
  std::set<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    if (!tensor.is_non_overlapping_and_dense()) {
      throw ConfigError(
          "[arena] '" + name + "' has gaps or overlaps in memory; make it contiguous");
    }
    if (find_invalid_utf8(name)) {
      throw ConfigError(
          "[arena] a tensor has the name '" + with_escapes(name) +
          "', expected UTF-8 for checkpoints; rename the module or the tensor");
    }
    if (!names.insert(name).second) {
      throw ConfigError("[arena] the name '" + name + "' occurs twice; rename one");
    }
    const size_t segment = segment_for(
        {tensor.scalar_type(), device.value_or(tensor.device()), tensor.requires_grad(),
         0});
    slots_.push_back(
        {name, static_cast<int64_t>(segment), 0, tensor.numel(), tensor.sizes().vec(),
         tensor.strides().vec(), groups.empty() ? 0 : groups[i]});
  }
  plan_buckets(divisor, bucket_bytes);
}

size_t ArenaLayout::segment_for(const Segment& wanted) {
  const auto found =
      std::find_if(segments_.begin(), segments_.end(), [&](const Segment& segment) {
        return segment.dtype == wanted.dtype && segment.device == wanted.device &&
               segment.trainable == wanted.trainable;
      });
  const auto index = static_cast<size_t>(found - segments_.begin());
  if (found == segments_.end()) {
    segments_.push_back(wanted);
  }
  return index;
}

// Sets the offsets of slots, the sizes of segments and the buckets.
void ArenaLayout::plan_buckets(int64_t divisor, int64_t bucket_bytes) {
  for (size_t index = 0; index < segments_.size(); ++index) {
    Segment& segment = segments_[index];
    const int64_t unit = aligned_numel(segment.dtype);
    const int64_t limit =
        bucket_bytes / static_cast<int64_t>(c10::elementSize(segment.dtype));
    std::vector<Bucket> buckets;
    for (size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (slot.segment != static_cast<int64_t>(index)) {
        continue;
      }
      if (segment.trainable && !buckets.empty() &&
          segment.numel + slot.numel - buckets.back().range.begin > limit) {
        segment.numel = round_up(segment.numel, divisor * unit);
        buckets.back().range.end = segment.numel;
        buckets.push_back({{slot.segment, segment.numel, 0}, {}});
      } else if (buckets.empty()) {
        buckets.push_back({{slot.segment, 0, 0}, {}});
      }
      slot.offset = segment.numel;
      segment.numel += round_up(slot.numel, unit);
      buckets.back().slots.push_back(i);
    }
    segment.numel = round_up(segment.numel, divisor * unit);
    buckets.back().range.end = segment.numel;
    if (segment.trainable) {
      buckets_.insert(buckets_.end(), buckets.begin(), buckets.end());
    }
  }
}

std::vector<ArenaRange> ArenaLayout::parts(int index, int count) const {
  std::vector<ArenaRange> parts;
  for (const auto& bucket : buckets_) {
    parts.push_back(bucket.part(index, count));
  }
  return parts;
}

std::vector<ArenaRange> ArenaLayout::ranges() const {
  std::vector<ArenaRange> ranges;
  for (size_t i = 0; i < segments_.size(); ++i) {
    ranges.push_back({static_cast<int64_t>(i), 0, segments_[i].numel});
  }
  return ranges;
}

std::vector<ArenaRange> ArenaLayout::trainable_ranges() const {
  std::vector<ArenaRange> trainable;
  for (const auto& range : ranges()) {
    if (segments_[static_cast<size_t>(range.segment)].trainable) {
      trainable.push_back(range);
    }
  }
  return trainable;
}

std::string ArenaLayout::describe() const {
  std::string lines;
  for (const auto& slot : slots_) {
    lines += slot.name + " " + text(slot.dims) + " strides " + text(slot.strides) +
             " at " + std::to_string(slot.segment) + ":" + std::to_string(slot.offset) +
             "\n";
  }
  for (const auto& segment : segments_) {
    lines += std::string(c10::toString(segment.dtype)) + " " +
             c10::DeviceTypeName(segment.device.type(), true) +
             (segment.trainable ? " trainable " : " frozen ") +
             std::to_string(segment.numel) + "\n";
  }
  for (const auto& bucket : buckets_) {
    lines += "bucket to " + std::to_string(bucket.range.end) + "\n";
  }
  return lines;
}

namespace {

// Under AddressSanitizer, arenas are on the heap, because the sanitizer checks only the
// bounds of heap blocks.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kGuardsHeap = true;
#else
constexpr bool kGuardsHeap = false;
#endif

// Returns null if the memory cannot be mapped.
void* mapped(size_t bytes, int flags, int fd) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

at::Tensor flat_tensor(void* memory, size_t bytes, const Segment& segment) {
  return at::from_blob(
      memory, {segment.numel}, [bytes](void* at) { munmap(at, bytes); },
      at::TensorOptions().dtype(segment.dtype));
}

// Sets memory to zero and returns its whole pages to the system. Returns false if the
// system does not take them; nothing has then changed.
bool release_pages(void* memory, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t end = begin + bytes;
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = end / page * page;
  if (first >= last) {
    return false;
  }
  auto* const pages = reinterpret_cast<void*>(first);
  // The first call is for shared memory, the second for private memory.
  if (madvise(pages, last - first, MADV_REMOVE) != 0 &&
      madvise(pages, last - first, MADV_DONTNEED) != 0) {
    return false;
  }
  std::memset(memory, 0, first - begin);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
  return true;
}

size_t bytes_of(const Segment& segment) {
  return static_cast<size_t>(segment.numel) * c10::elementSize(segment.dtype);
}

}  // namespace

ArenaAllocator heap_allocator() {
  return [](const std::string&, int64_t, const Segment& segment) {
    const size_t bytes = bytes_of(segment);
    void* memory = segment.device.is_cpu() && bytes > 0 && !kGuardsHeap
                       ? mapped(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1)
                       : nullptr;
    return memory != nullptr
               ? flat_tensor(memory, bytes, segment)
               : at::zeros(
                     {segment.numel},
                     at::TensorOptions().dtype(segment.dtype).device(segment.device));
  };
}

ArenaAllocator trainable_only(ArenaAllocator allocate) {
  return [allocate = std::move(allocate)](
             const std::string& name, int64_t index, const Segment& segment) {
    return segment.trainable
               ? allocate(name, index, segment)
               : at::empty(
                     {0},
                     at::TensorOptions().dtype(segment.dtype).device(segment.device));
  };
}

ArenaAllocator shared_allocator(
    std::function<void(const std::string&, int64_t, int)> created) {
  return [created](const std::string& name, int64_t index, const Segment& segment) {
    const int fd = memfd_create(("tandem-" + name).c_str(), 0);
    const size_t bytes = bytes_of(segment);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      throw DataError(
          "[arena] cannot make " + std::to_string(bytes) + " bytes of shared memory: " +
          std::strerror(errno) + "; free memory or raise its limit");
    }
    if (created) {
      created(name, index, fd);
    }
    return map_shared(created ? dup(fd) : fd, segment);
  };
}

at::Tensor map_shared(int fd, const Segment& segment) {
  const size_t bytes = bytes_of(segment);
  struct stat info {};
  const bool large_enough =
      fstat(fd, &info) == 0 && static_cast<size_t>(info.st_size) >= bytes;
  void* memory = large_enough ? mapped(bytes, MAP_SHARED, fd) : nullptr;
  close(fd);
  if (memory == nullptr) {
    throw DataError(
        "[arena] the shared mapping is smaller than the " + std::to_string(bytes) +
        " bytes of the segment; start all ranks with the same model");
  }
  return flat_tensor(memory, bytes, segment);
}

Arena::Arena(
    std::shared_ptr<const ArenaLayout> layout, const std::string& name,
    const ArenaAllocator& allocate)
    : layout_(std::move(layout)), name_(name) {
  for (size_t i = 0; i < layout_->segments().size(); ++i) {
    segments_.push_back(
        allocate(name, static_cast<int64_t>(i), layout_->segments()[i]));
  }
}

at::Tensor Arena::slice(const ArenaRange& range) const {
  return untracked_view(segment(range.segment), {range.size()}, {1}, range.begin);
}

at::Tensor Arena::view(size_t index) const {
  const Slot& slot = layout_->slots()[index];
  return untracked_view(segment(slot.segment), slot.dims, slot.strides, slot.offset);
}

std::vector<NamedTensor> Arena::named_views() const {
  std::vector<NamedTensor> views;
  const auto& slots = layout_->slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (holds(slots[i].segment)) {
      views.push_back({name_ + "/" + slots[i].name, view(i)});
    }
  }
  return views;
}

void Arena::zero() {
  if (!releases_) {
    for (auto& segment : segments_) {
      segment.zero_();
    }
    return;
  }
  for (const auto& range : layout_->ranges()) {
    if (holds(range.segment)) {
      release(range);
    }
  }
}

void Arena::release_except(const ArenaRange& range, const ArenaRange& kept) {
  release({range.segment, range.begin, kept.begin});
  release({range.segment, kept.end, range.end});
}

void Arena::release(const ArenaRange& range) {
  auto elements = slice(range);
  if (!elements.is_cpu() || !release_pages(elements.data_ptr(), elements.nbytes())) {
    elements.zero_();
  }
}

ModelArenas::ModelArenas(
    const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers,
    const ModelArenaOptions& options)
    : ModelArenas(parameters, buffers, lay_out(parameters, options), options) {}

ModelArenas::ModelArenas(
    std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
    std::shared_ptr<const ArenaLayout> layout, const ModelArenaOptions& options)
    : named_parameters_(std::move(parameters)),
      named_buffers_(std::move(buffers)),
      parameters_(layout, "parameters", options.allocate_parameters),
      gradients_(layout, "gradients", trainable_only(options.allocate_gradients)),
      buffers_(
          std::make_shared<ArenaLayout>(
              named_buffers_, std::vector<int64_t>{}, 1, options.device),
          "buffers", heap_allocator()) {
  move_into(parameters_, named_parameters_, options.copy_parameters);
  move_into(buffers_, named_buffers_, true);
  for (const auto& slot : layout->slots()) {
    for (const auto& entry : named_parameters_) {
      if (entry.name == slot.name) {
        tensors_.push_back(entry.tensor);
      }
    }
  }
  // The new arena contains zeros, and writing them would allocate its pages.
  attach_gradients(false);
}

at::Device ModelArenas::device() const {
  const auto& segments = parameters_.layout().segments();
  return segments.empty() ? at::Device(at::kCPU) : segments.front().device;
}

std::vector<NamedTensor> ModelArenas::state() const {
  auto all = named_parameters_;
  all.insert(all.end(), named_buffers_.begin(), named_buffers_.end());
  return all;
}

void ModelArenas::attach_gradients() {
  attach_gradients(true);
}

void ModelArenas::attach_gradients(bool zero_missing) {
  // After a backward with create_graph, autograd would add the copies below to the
  // graph.
  const at::NoGradGuard guard;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    auto& tensor = tensors_[i];
    const int64_t segment = gradients_.layout().slots()[i].segment;
    if (!tensor.requires_grad() || !gradients_.holds(segment)) {
      continue;
    }
    auto& gradient = tensor.mutable_grad();
    if (gradient.defined() && gradient.is_alias_of(gradients_.segment(segment))) {
      continue;
    }
    auto view = gradients_.view(i);
    if (gradient.defined()) {
      view.copy_(gradient);
    } else if (zero_missing) {
      view.zero_();
    }
    gradient = view;
  }
}

void ModelArenas::check_attached() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Slot& slot = parameters_.layout().slots()[i];
    if (tensors_[i].data_ptr() != parameters_.view(i).data_ptr()) {
      throw ConfigError(
          "[arena] parameter '" + slot.name +
          "' is no longer in its arena: the module was moved or its data replaced; "
          "move the module before it is given to tandem");
    }
  }
}

std::string ModelArenas::parameters_sha256() const {
  Sha256 hash;
  for (const auto& [name, tensor] : named_parameters_) {
    const auto values = tensor.detach().contiguous().cpu();
    hash.update(name.data(), name.size() + 1);
    hash.update(values.data_ptr(), static_cast<size_t>(values.nbytes()));
  }
  return hash.hex_digest();
}

}  // namespace tandem
