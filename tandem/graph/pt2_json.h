#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tandem {

/// Last text of errors about a damaged file.
constexpr const char* kExportAgain = "export the model again with torch.export.save";

/// Throws DataError because the file at `path` is damaged. The message is `path`,
/// followed by `what`.
[[noreturn]] void fail_pt2(const std::string& path, const std::string& what);

/// Throws ConfigError because tandem cannot use the file at `path`. The message is
/// `path`, followed by `what`, which ends with an action.
[[noreturn]] void refuse_pt2(const std::string& path, const std::string& what);

/// Maximum memory that one parsed JSON value uses, in bytes, without the characters of
/// strings. Each name in an object counts as one more value.
constexpr size_t kBytesPerJsonValue = 160;

/// Parses JSON text of the file at `path`. Calls `on_name` for each name in an object,
/// in the order of the text. `depth` is 1 in the outermost object.
///
/// Throws DataError if the text is damaged or nested too deeply. Throws ConfigError if
/// the text has more than `most_values` values, before it uses memory for the values.
nlohmann::json parse_json(
    const std::string& text, const std::string& path, size_t most_values,
    const std::function<void(int depth, const std::string& name)>& on_name = {});

/// Returns an integer. Throws nlohmann::json::exception for any other value, also for
/// fractions and booleans, which the JSON library would convert.
int64_t integer_of(const nlohmann::json& value);

/// Returns the text in a JSON string. Throws nlohmann::json::exception for any other
/// value.
const std::string& string_of(const nlohmann::json& value);

/// Returns the kind of a union, such as "as_int": the name in an object with a single
/// name. Returns "" for other objects. Throws nlohmann::json::exception for any other
/// value.
const std::string& kind_of(const nlohmann::json& value);

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
