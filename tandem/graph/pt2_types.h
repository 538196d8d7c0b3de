#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tandem {

/// Return LibTorch's value for a number in a file of torch.export.save. Return nothing
/// for unknown numbers, and for types and layouts that tandem does not support.
///
/// Source: ScalarType, Layout and MemoryFormat in torch/_export/serde/schema.py.
std::optional<at::ScalarType> pt2_dtype(int64_t number);
std::optional<at::Layout> pt2_layout(int64_t number);
std::optional<at::MemoryFormat> pt2_memory_format(int64_t number);

/// Return the number of a value in a file of torch.export.save; nothing for values that
/// the functions above do not return.
std::optional<int64_t> pt2_number(at::ScalarType dtype);
std::optional<int64_t> pt2_number(at::Layout layout);
std::optional<int64_t> pt2_number(at::MemoryFormat format);

}  // namespace tandem
