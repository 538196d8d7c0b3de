#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>

namespace tandem {

/// Names and numbers of a dtype in the file formats that tandem reads and writes.
struct FileDtype {
  at::ScalarType dtype;
  // "dtype" in the header of a safetensors file.
  std::string_view safetensors;
  // Class of the storage in a pickle of torch.save.
  std::string_view storage;
  // ScalarType in torch/_export/serde/schema.py.
  int64_t pt2;
  // TensorProto.DataType in onnx/onnx.proto.
  int64_t onnx;
};

inline constexpr FileDtype kFileDtypes[] = {
    {at::kFloat, "F32", "FloatStorage", 7, 1},
    {at::kDouble, "F64", "DoubleStorage", 8, 11},
    {at::kHalf, "F16", "HalfStorage", 6, 10},
    {at::kBFloat16, "BF16", "BFloat16Storage", 13, 16},
    {at::kLong, "I64", "LongStorage", 5, 7},
    {at::kInt, "I32", "IntStorage", 4, 6},
    {at::kShort, "I16", "ShortStorage", 3, 5},
    {at::kChar, "I8", "CharStorage", 2, 3},
    {at::kByte, "U8", "ByteStorage", 1, 2},
    {at::kBool, "BOOL", "BoolStorage", 12, 9},
};

/// Returns the row whose `member` is `value`, such as find_dtype(&FileDtype::pt2, 7).
/// Returns null for a dtype that the formats or tandem do not support.
template <typename T, typename Value>
const FileDtype* find_dtype(T FileDtype::*member, const Value& value) {
  for (const auto& row : kFileDtypes) {
    if (row.*member == value) {
      return &row;
    }
  }
  return nullptr;
}

inline const FileDtype* find_dtype(at::ScalarType dtype) {
  return find_dtype(&FileDtype::dtype, dtype);
}

}  // namespace tandem
