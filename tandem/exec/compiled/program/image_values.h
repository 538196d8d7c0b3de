#pragma once

#include <dnnl.hpp>
#include <map>
#include <vector>

#include "tandem/exec/compiled/onednn_memory.h"
#include "tandem/exec/program/instruction.h"

namespace tandem {

/// The tensors of a program that kernels keep as images in a layout of oneDNN, in
/// memory of their own. A tensor exists as a tensor of ProgramState, as an image, or as
/// both.
class ImageValues {
 public:
  ImageValues(const Recording& recording, const OnednnContext& context)
      : recording_(recording), context_(context) {}

  bool is_image(RecordedId id) const {
    return images_.count(id) > 0;
  }
  /// Returns the layout of an image.
  dnnl::memory::desc layout(RecordedId id) const {
    return images_.at(id).memory.get_desc();
  }

  /// Makes `memory` the image of a tensor that a kernel writes.
  void set(RecordedId id, const dnnl::memory& memory);
  /// Releases the memory of an image that no later call reads, unless another image
  /// shares it. Does nothing for other tensors.
  void release(RecordedId id);
  /// Returns the image of a tensor. If it has none, adds the instruction that copies
  /// the tensor into an image in row-major order.
  dnnl::memory image(RecordedId id, size_t layer, std::vector<Instruction>& program);
  /// Returns the image of a tensor in the given layout, after instructions that copy
  /// it.
  dnnl::memory image_in(
      const dnnl::memory::desc& layout, RecordedId id, size_t layer,
      std::vector<Instruction>& program);
  /// Adds the instruction that makes the tensor of an image, unless it exists.
  void provide_tensor(RecordedId id, size_t layer, std::vector<Instruction>& program);

  /// Returns new memory for an image in this layout.
  dnnl::memory make(const dnnl::memory::desc& layout) const {
    return context_.make(layout);
  }

 private:
  struct Image {
    dnnl::memory memory;
    // True if the tensor exists, too.
    bool is_tensor = false;
  };

  const Recording& recording_;
  OnednnContext context_;
  std::map<RecordedId, Image> images_;
  // Number of images with the memory at an address.
  std::map<const void*, int> users_;
};

/// Returns a flat tensor over the elements of an image, which keeps its memory alive.
at::Tensor flat_tensor(const dnnl::memory& image);

}  // namespace tandem
