#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem {

/// Memory of a JSON value in bytes, besides its text. A name in an object counts as
/// a value.
constexpr size_t kBytesPerJsonValue = 160;

/// Parses JSON of a file at `path`. `on_name` gets each name in an object in the file's
/// order, and its depth: 1 in the outermost object.
///
/// Throws DataError if the text is damaged or nested too deeply. Throws ConfigError if
/// it has more than `most_values` values, before it uses memory for them.
nlohmann::json parse_json(
    const std::string& text, const std::string& path, size_t most_values,
    const std::function<void(int depth, const std::string& name)>& on_name = {});

/// Returns an integer. Throws nlohmann::json::exception for any other value, also for
/// fractions and booleans, which the JSON library would convert.
int64_t integer_of(const nlohmann::json& value);

/// Returns the text. Throws nlohmann::json::exception for any other value.
const std::string& string_of(const nlohmann::json& value);

/// Returns the kind of a union, such as "as_int": the only name in an object. Returns
/// "" if there are several. Throws nlohmann::json::exception for any other value.
const std::string& kind_of(const nlohmann::json& value);

}  // namespace tandem
