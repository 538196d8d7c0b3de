#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem {

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

}  // namespace tandem
