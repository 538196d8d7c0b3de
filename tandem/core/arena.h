#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Optional.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tandem {

/// A tensor and the name that Python's state_dict() gives it.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A run of elements of one segment: [begin, end).
struct ArenaRange {
  int64_t segment = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const {
    return end - begin;
  }
};

/// Where one tensor lies. Offsets and sizes count elements, not bytes.
struct Slot {
  std::string name;
  int64_t segment = 0;
  int64_t offset = 0;
  int64_t numel = 0;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  // Parameter group, see optimizer.h.
  int64_t group = 0;

  ArenaRange range() const {
    return {segment, offset, offset + numel};
  }
};

/// One contiguous buffer. `numel` includes the padding between and after slots.
struct Segment {
  at::ScalarType dtype;
  at::Device device;
  bool trainable;
  int64_t numel;
};

/// Which tensor lies where: pure arithmetic, the same on every rank.
///
/// Slots lie in the order given, one segment per (dtype, device, trainable), each slot
/// aligned to 64 bytes, each segment padded so that it divides evenly among `divisor`
/// ranks, in parts of whole 64 bytes. Strides are kept, so a channels_last tensor stays
/// one.
class ArenaLayout {
 public:
  /// `groups[i]` is the parameter group of `tensors[i]`; empty: all 0. `device`: where
  /// segments are; none: where the tensors are.
  ///
  /// Throws ConfigError for a tensor with gaps or overlaps in memory, or a
  /// name that occurs twice.
  ArenaLayout(
      const std::vector<NamedTensor>& tensors, const std::vector<int64_t>& groups,
      int64_t divisor, c10::optional<at::Device> device = c10::nullopt);

  const std::vector<Slot>& slots() const {
    return slots_;
  }
  const std::vector<Segment>& segments() const {
    return segments_;
  }
  /// The whole of each segment, padding included.
  std::vector<ArenaRange> ranges() const;
  /// The same, of the segments that an optimizer updates.
  std::vector<ArenaRange> trainable_ranges() const;

  /// A line per slot and segment: equal on two ranks exactly when their
  /// layouts are.
  [[nodiscard]] std::string describe() const;

 private:
  std::vector<Slot> slots_;
  std::vector<Segment> segments_;
};

/// Gives the memory of a segment: a flat tensor of `segment.numel` zeros.
/// `name` ("parameters", "gradients", ...) and the segment's number say which.
using ArenaAllocator = std::function<at::Tensor(
    const std::string& name, int64_t index, const Segment& segment)>;

/// Private memory of this process, 64-byte aligned; pages of main memory take room only
/// once they are used.
[[nodiscard]] ArenaAllocator heap_allocator();

/// Memory in an anonymous shared mapping behind a file descriptor, which a
/// process started by this one can inherit (see map_shared).
///
/// `created` is called with each new descriptor and owns it; the mapping stays until
/// the last tensor on it is gone.
[[nodiscard]] ArenaAllocator shared_allocator(
    std::function<void(const std::string& name, int64_t index, int fd)> created = {});

/// A flat tensor over an existing shared mapping. Takes over `fd`.
/// Throws DataError when the mapping is smaller than the segment.
[[nodiscard]] at::Tensor map_shared(int fd, const Segment& segment);

/// Buffers laid out by an ArenaLayout. Not thread-safe; views share memory.
class Arena {
 public:
  Arena(
      std::shared_ptr<const ArenaLayout> layout, const std::string& name,
      const ArenaAllocator& allocate = heap_allocator());

  const ArenaLayout& layout() const {
    return *layout_;
  }
  const std::string& name() const {
    return name_;
  }
  /// The flat buffer of a segment, padding (always zero) included.
  const at::Tensor& segment(int64_t index) const {
    return segments_[static_cast<size_t>(index)];
  }
  /// A part of a segment, flat. Not a tracked view: autograd does not see it.
  [[nodiscard]] at::Tensor slice(const ArenaRange& range) const;

  /// A slot in its own shape. Not a tracked view.
  [[nodiscard]] at::Tensor view(size_t slot) const;

  void zero();

 private:
  std::shared_ptr<const ArenaLayout> layout_;
  std::string name_;
  std::vector<at::Tensor> segments_;
};

struct ModelArenaOptions {
  // Segments divide evenly among this many ranks.
  int64_t divisor = 1;
  // The parameter group of a parameter; none: all are in group 0.
  std::function<int64_t(const NamedTensor&)> group_of;
  ArenaAllocator allocate_parameters = heap_allocator();
  ArenaAllocator allocate_gradients = heap_allocator();
  // Device of the arenas, to which the model moves. None: the model's own device.
  c10::optional<at::Device> device;
};

/// A model's parameters, their gradients and its buffers, in three arenas.
///
/// Parameters lie in reverse order of registration, so gradients become ready
/// from the front of the arena to its back while backward runs. A tensor that
/// is registered twice (tied weights) has one slot, under its first name.
class ModelArenas {
 public:
  /// Moves the values into arenas and makes the tensors views of them; each
  /// trainable parameter's .grad becomes a view of the gradient arena. The
  /// lists are in order of registration.
  ModelArenas(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, const ModelArenaOptions& options = {});

  Arena& parameters() {
    return parameters_;
  }
  const Arena& parameters() const {
    return parameters_;
  }
  Arena& gradients() {
    return gradients_;
  }
  Arena& buffers() {
    return buffers_;
  }

  /// The parameter tensor of each slot of parameters() and gradients().
  const std::vector<at::Tensor>& tensors() const {
    return tensors_;
  }
  /// Device of the first parameter; the CPU if there is none.
  at::Device device() const;

  /// Parameters, then buffers, each in order of registration.
  std::vector<NamedTensor> state() const;

  /// Makes .grad a view of the gradient arena again where it is not (a user's
  /// zero_grad() may have unset it), keeping the gradient's value; a missing gradient
  /// is zero.
  void attach_gradients();

  /// Throws ConfigError that names the first parameter which is no longer in
  /// its arena: the module was moved (`to`) or its data replaced.
  void check_attached() const;

  /// SHA-256 over names and contents of the parameters, in order of
  /// registration, without padding, as 64 hex digits.
  std::string parameters_sha256() const;

 private:
  ModelArenas(
      std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
      std::shared_ptr<const ArenaLayout> layout, const ModelArenaOptions& options);

  std::vector<NamedTensor> named_parameters_;
  std::vector<NamedTensor> named_buffers_;
  Arena parameters_;
  Arena gradients_;
  Arena buffers_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace tandem
