#pragma once

#include <string>
#include <vector>

#include "tandem/graph/call_recorder.h"

namespace tandem {

/// The calls that read each tensor of a recording.
class Readers {
 public:
  explicit Readers(const Recording& recording);

  /// Returns the indices of the calls, in order. A call that reads the tensor twice
  /// counts twice.
  const std::vector<size_t>& of(RecordedId id) const {
    return readers_[static_cast<size_t>(id)];
  }
  /// Returns the only call that reads the tensor, or -1.
  int64_t only(RecordedId id) const {
    return of(id).size() == 1 ? static_cast<int64_t>(of(id)[0]) : -1;
  }

 private:
  std::vector<std::vector<size_t>> readers_;
};

/// Reads the arguments of a recorded call by their position.
class CallReader {
 public:
  CallReader(const Recording& recording, size_t call)
      : recording_(recording), call_(recording.calls[call]) {}

  RecordedId id(size_t argument) const {
    return call_.arguments[argument].tensor;
  }
  RecordedId result(size_t index) const {
    return call_.results.at(index);
  }
  /// Returns the description of a tensor; null if the argument is None.
  const RecordedTensor* tensor(size_t argument) const;
  /// Returns the fixed tensor, such as a parameter; undefined if there is none.
  at::Tensor fixed(size_t argument) const;

  bool flag(size_t argument) const {
    return call_.arguments[argument].constant.toBool();
  }
  bool flag(size_t argument, size_t element) const {
    return call_.arguments[argument].constant.toBoolList().get(element);
  }
  double number(size_t argument) const {
    return call_.arguments[argument].constant.toScalar().toDouble();
  }
  /// Returns whether all integers of a list equal `value`.
  bool all(size_t argument, int64_t value) const;
  /// Returns the integer that a list of two repeats, or of one contains; -1 if they
  /// differ.
  int64_t square(size_t argument) const;

 private:
  const Recording& recording_;
  const RecordedCall& call_;
};

/// Returns whether the tensor is a contiguous batch of images in float32.
bool is_images(const RecordedTensor* tensor);

}  // namespace tandem
