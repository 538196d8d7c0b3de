#pragma once

#include <optional>
#include <string>

#include "tandem/graph/graph.h"

namespace tandem {

/// Maximum absolute value of a size in a file. With this limit, sums of sizes and
/// products of sizes with the number of samples stay within 64 bits.
constexpr int64_t kLargestSize = int64_t{1} << 40;

// Expressions have the form of sympy.srepr, such as "Mul(Integer(8), Symbol('s77',
// positive=True, integer=True))".

/// Returns the name of the symbol if an expression is a single symbol.
std::optional<std::string> symbol_of(const std::string& expression);

/// Parses an expression in which `symbol` is the number of samples. Returns nullopt if
/// the expression is not linear or has another symbol.
std::optional<Size> parse_size(
    const std::string& expression, const std::string& symbol);

/// Returns an expression as text for messages, without the properties of symbols, and
/// cut to at most 80 characters.
std::string readable_size(const std::string& expression);

}  // namespace tandem
