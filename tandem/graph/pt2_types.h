#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tandem {

/// Functions that return LibTorch's dtype, layout or memory format for its number in a
/// file of torch.export.save. They return nullopt for unknown numbers, and for types
/// and layouts that tandem does not support.
///
/// Source: ScalarType, Layout and MemoryFormat in torch/_export/serde/schema.py.
std::optional<at::ScalarType> pt2_dtype(int64_t number);
std::optional<at::Layout> pt2_layout(int64_t number);
std::optional<at::MemoryFormat> pt2_memory_format(int64_t number);

/// Functions that return the number of a dtype, layout or memory format in a file of
/// torch.export.save. They return nullopt for values that the functions above do not
/// return.
std::optional<int64_t> pt2_number(at::ScalarType dtype);
std::optional<int64_t> pt2_number(at::Layout layout);
std::optional<int64_t> pt2_number(at::MemoryFormat format);

}  // namespace tandem
