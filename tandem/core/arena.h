#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Optional.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

/// A tensor and its name. A tensor of a model has the name that Python's state_dict()
/// gives it.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Returns the tensors without their names.
[[nodiscard]] std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named);

/// The elements [begin, end) of one segment.
struct ArenaRange {
  int64_t segment = 0;
  int64_t begin = 0;
  int64_t end = 0;

  /// Returns the number of elements.
  int64_t size() const {
    return end - begin;
  }

  /// Returns the elements that are also in `other`, a range of the same segment. The
  /// result has size 0 if there are none, and is always within this range.
  ArenaRange overlap(const ArenaRange& other) const {
    const int64_t first = std::clamp(other.begin, begin, end);
    return {segment, first, std::clamp(other.end, first, end)};
  }
};

/// Position of one tensor in an arena. Offsets and sizes count elements, not bytes.
struct Slot {
  std::string name;
  int64_t segment = 0;
  int64_t offset = 0;
  int64_t numel = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  // Index of the parameter group (optim/optimizer.h).
  int64_t group = 0;

  /// Returns the elements of the slot, without padding.
  ArenaRange range() const {
    return {segment, offset, offset + numel};
  }
};

/// Description of one contiguous buffer of an arena. `numel` includes the padding
/// between and after slots.
struct Segment {
  at::ScalarType dtype;
  at::Device device;
  bool trainable;
  int64_t numel;
};

/// Consecutive slots of a trainable segment that ranks exchange in one operation.
struct Bucket {
  // With its padding.
  ArenaRange range;
  // Indices of the slots.
  std::vector<size_t> slots;

  /// Returns part `index` of `count` equal parts. Throws ConfigError if the range does
  /// not divide evenly (ModelArenaOptions::divisor).
  [[nodiscard]] ArenaRange part(int index, int count) const;
};

/// Positions of tensors in an arena. Every rank computes the same layout.
///
/// There is one segment per (dtype, device, trainable). Its slots are in the order of
/// the constructor's `tensors`. Each slot is aligned to 64 bytes. A trainable segment
/// is divided into buckets, from front to back. Each bucket, and each segment, is
/// padded so that it can be divided into equal parts of whole 64-byte blocks. The
/// constructor's `divisor` is the number of parts. Strides are kept, so a channels_last
/// tensor stays channels_last.
class ArenaLayout {
 public:
  /// Value of `bucket_bytes`: one bucket per segment.
  static constexpr int64_t kOneBucket = std::numeric_limits<int64_t>::max();

  /// Computes the layout for `tensors`.
  ///
  /// `groups[i]` is the parameter group of `tensors[i]`; if `groups` is empty, all are
  /// in group 0. `device` is the device of all segments; if it is not set, each tensor
  /// keeps its own device. A bucket has at most `bucket_bytes` bytes without the
  /// padding at its end, or contains a single larger tensor; with 0, each bucket is one
  /// tensor.
  ///
  /// Throws ConfigError if a tensor has gaps or overlaps in memory, if a name is not
  /// UTF-8 or occurs twice, or if `bucket_bytes` is negative.
  ArenaLayout(
      const std::vector<NamedTensor>& tensors, const std::vector<int64_t>& groups,
      int64_t divisor, c10::optional<at::Device> device = c10::nullopt,
      int64_t bucket_bytes = kOneBucket);

  /// Returns the slots, in the order of the constructor's `tensors`.
  const std::vector<Slot>& slots() const {
    return slots_;
  }
  /// Returns the segments, in the order in which they are first used.
  const std::vector<Segment>& segments() const {
    return segments_;
  }
  /// Returns the buckets of all trainable segments, in the order of the segments.
  /// Gradients become ready in this order.
  const std::vector<Bucket>& buckets() const {
    return buckets_;
  }
  /// Returns part `index` of `count` equal parts of each bucket (Bucket::part()).
  std::vector<ArenaRange> parts(int index, int count) const;
  /// Returns one range per segment: the whole segment with its padding.
  std::vector<ArenaRange> ranges() const;
  /// Returns one range per trainable segment: the whole segment with its padding.
  std::vector<ArenaRange> trainable_ranges() const;

  /// Returns a text with one line per slot, segment and bucket, without parameter
  /// groups and device indices. Ranks compare their texts to check that their layouts
  /// are equal.
  [[nodiscard]] std::string describe() const;

 private:
  size_t segment_for(const Segment& wanted);
  void plan_buckets(int64_t divisor, int64_t bucket_bytes);

  std::vector<Slot> slots_;
  std::vector<Segment> segments_;
  std::vector<Bucket> buckets_;
};

/// Allocates the memory of a segment: a flat tensor of `segment.numel` zeros, or an
/// empty tensor for a segment without memory (Arena::holds()). `name` is the name of
/// the arena ("parameters", "gradients", ...), `index` the index of the segment.
using ArenaAllocator = std::function<at::Tensor(
    const std::string& name, int64_t index, const Segment& segment)>;

/// Returns an allocator of private memory, aligned to 64 bytes. In main memory, pages
/// are allocated when they are first used.
[[nodiscard]] ArenaAllocator heap_allocator();

/// Returns an allocator that calls `allocate` for trainable segments and allocates no
/// memory for other segments (Arena::holds()).
[[nodiscard]] ArenaAllocator trainable_only(ArenaAllocator allocate);

/// Returns an allocator of anonymous shared memory. Each segment has a file descriptor
/// that child processes can inherit and pass to map_shared().
///
/// The allocator calls `created` with each new descriptor; `created` must close the
/// descriptor. The memory exists until the last tensor that uses it is destroyed.
[[nodiscard]] ArenaAllocator shared_allocator(
    std::function<void(const std::string& name, int64_t index, int fd)> created = {});

/// Maps the shared memory of `fd` and returns it as a flat tensor. Closes `fd`. Throws
/// DataError if the memory cannot be mapped or is smaller than the segment.
[[nodiscard]] at::Tensor map_shared(int fd, const Segment& segment);

/// Memory for the tensors of an ArenaLayout: one buffer per segment. Views share this
/// memory. Not thread-safe.
class Arena {
 public:
  /// Allocates the segments of `layout` with `allocate`, which also gets `name`.
  Arena(
      std::shared_ptr<const ArenaLayout> layout, const std::string& name,
      const ArenaAllocator& allocate = heap_allocator());

  /// Returns the layout of the tensors.
  const ArenaLayout& layout() const {
    return *layout_;
  }
  /// Returns the name, for instance "gradients".
  const std::string& name() const {
    return name_;
  }
  /// Returns the flat buffer of a segment, including its padding. The elements of the
  /// padding are always zero.
  const at::Tensor& segment(int64_t index) const {
    return segments_[static_cast<size_t>(index)];
  }
  /// Returns whether the segment has memory. A segment without memory has no slices and
  /// no views.
  bool holds(int64_t index) const {
    return segment(index).numel() ==
           layout_->segments()[static_cast<size_t>(index)].numel;
  }
  /// Returns a flat view of a part of a segment. Autograd does not track the view.
  [[nodiscard]] at::Tensor slice(const ArenaRange& range) const;

  /// Returns a view of a slot, in the shape of its tensor. Autograd does not track the
  /// view.
  [[nodiscard]] at::Tensor view(size_t slot) const;

  /// Returns the views of all slots that have memory, with names such as
  /// "gradients/fc1.weight".
  [[nodiscard]] std::vector<NamedTensor> named_views() const;

  /// Sets all elements to zero.
  void zero();

  /// Sets the elements of `range` outside of `kept` to zero, and returns their memory
  /// to the system, except for pages that also have other elements. On devices, keeps
  /// the memory. `kept` is a part of `range`.
  void release_except(const ArenaRange& range, const ArenaRange& kept);

  /// Makes zero() return the memory to the system, so that memory is used only for
  /// elements that are written afterwards.
  void release_on_zero() {
    releases_ = true;
  }
  /// Returns whether release_on_zero() was called.
  bool releases() const {
    return releases_;
  }

 private:
  void release(const ArenaRange& range);

  std::shared_ptr<const ArenaLayout> layout_;
  std::string name_;
  bool releases_ = false;
  std::vector<at::Tensor> segments_;
};

/// Options of ModelArenas.
struct ModelArenaOptions {
  // Number of equal parts into which each bucket can be divided, usually the number of
  // ranks.
  int64_t divisor = 1;
  // Largest size of a bucket (ArenaLayout).
  int64_t bucket_bytes = ArenaLayout::kOneBucket;
  // Returns the index of a parameter's parameter group. Empty: all parameters are in
  // group 0.
  std::function<int64_t(const NamedTensor&)> group_of;
  ArenaAllocator allocate_parameters = heap_allocator();
  ArenaAllocator allocate_gradients = heap_allocator();
  // False: the arena of the parameters has zeros instead of their values, because the
  // values of another rank will be copied into it. Its pages are not allocated yet.
  bool copy_parameters = true;
  // Device of the arenas, to which the model's tensors are moved. Not set: the device
  // of the model.
  c10::optional<at::Device> device;
};

/// A model's parameters, their gradients and its buffers, in three arenas.
///
/// Parameters are in reverse order of registration, so gradients become ready from the
/// front of the arena to its back while backward runs. A tensor that is registered
/// twice (tied weights) has one slot, under its first name.
class ModelArenas {
 public:
  /// Copies the values into arenas and makes the tensors views of the arenas, one
  /// tensor after another, so that the memory of the earlier tensors can be reused. The
  /// .grad of each trainable parameter becomes a view of the gradient arena.
  /// `parameters` and `buffers` are in order of registration.
  ModelArenas(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, const ModelArenaOptions& options = {});

  /// Returns the arena of the parameters.
  Arena& parameters() {
    return parameters_;
  }
  /// Returns the arena of the parameters.
  const Arena& parameters() const {
    return parameters_;
  }
  /// Returns the arena of the gradients, with the layout of parameters(). Segments that
  /// are not trainable have no memory.
  Arena& gradients() {
    return gradients_;
  }
  /// Returns the arena of the buffers.
  Arena& buffers() {
    return buffers_;
  }

  /// Returns the parameter tensor of each slot of parameters() and gradients().
  const std::vector<at::Tensor>& tensors() const {
    return tensors_;
  }
  /// Returns the device of the first segment of parameters(); the CPU if there is none.
  at::Device device() const;

  /// Returns the parameters, then the buffers, each in order of registration.
  std::vector<NamedTensor> state() const;

  /// Makes each .grad a view of the gradient arena again, for instance after a user's
  /// zero_grad(). Keeps the values of gradients; a missing gradient becomes zero.
  void attach_gradients();

  /// Throws ConfigError with the name of the first parameter that is no longer in its
  /// arena. This happens if the module was moved (`to`) or the parameter's data was
  /// replaced.
  void check_attached() const;

  /// Returns the SHA-256 of the parameters' names and values, in order of registration,
  /// without padding, as 64 hex digits.
  std::string parameters_sha256() const;

 private:
  ModelArenas(
      std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
      std::shared_ptr<const ArenaLayout> layout, const ModelArenaOptions& options);
  void attach_gradients(bool zero_missing);

  std::vector<NamedTensor> named_parameters_;
  std::vector<NamedTensor> named_buffers_;
  Arena parameters_;
  Arena gradients_;
  Arena buffers_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace tandem
