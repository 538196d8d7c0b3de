#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tandem {

/// Returns LibTorch's dtype, layout or memory format for its number in a file of
/// torch.export.save. Returns nullopt for unknown numbers, and for types and layouts
/// that tandem does not support.
///
/// Source: ScalarType, Layout and MemoryFormat in torch/_export/serde/schema.py.
std::optional<at::ScalarType> pt2_dtype(int64_t number);
std::optional<at::Layout> pt2_layout(int64_t number);
std::optional<at::MemoryFormat> pt2_memory_format(int64_t number);

}  // namespace tandem
