#pragma once

#include <string>
#include <vector>

namespace tandem {

/// Shell globs for names of tensors, as matched by fnmatch(3): `*` matches any text,
/// `?` one character, `[abc]` one of these characters. A pattern matches the whole
/// name.
using NamePatterns = std::vector<std::string>;

/// A pattern, and a factor for the parameters whose names match the pattern.
struct PatternFactor {
  std::string pattern;
  double factor = 1;
};

/// Parses a list such as "layer1.*,conv1.*". Returns an empty list for "".
///
/// `setting` is the recipe key, for the error. Throws ConfigError if an entry is empty.
[[nodiscard]] NamePatterns parse_patterns(
    const std::string& setting, const std::string& text);

/// Parses a list such as "layer1.*=0.1,fc.*=10", like parse_patterns(). Also throws
/// ConfigError if an entry has no factor, or if a factor is not between 0 and 1e37.
[[nodiscard]] std::vector<PatternFactor> parse_pattern_factors(
    const std::string& setting, const std::string& text);

/// Returns the patterns of `factors`, in the same order.
[[nodiscard]] NamePatterns patterns_of(const std::vector<PatternFactor>& factors);

/// Returns whether one of the patterns matches a name.
[[nodiscard]] bool matches_any(const NamePatterns& patterns, const std::string& name);

/// Returns the factor of the first pattern that matches a name; 1 if none matches.
[[nodiscard]] double factor_of(
    const std::vector<PatternFactor>& factors, const std::string& name);

/// Throws ConfigError with the first pattern that matches none of `names`, which are
/// the names of a `kind` of things. The message suggests the most similar name or
/// module.
void check_patterns_match(
    const std::string& setting, const NamePatterns& patterns,
    const std::vector<std::string>& names, const std::string& kind = "tensor");

}  // namespace tandem
