#include "tandem/graph/pt2_sizes.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

#include "tandem/base/text.h"

namespace tandem {

namespace {

// Thrown for an expression that is not linear, or that is not an expression.
struct NotLinear {};

void expect(bool holds) {
  if (!holds) {
    throw NotLinear();
  }
}

bool is_small(int64_t number) {
  return number >= -kLargestSize && number <= kLargestSize;
}

Size checked(const Size& size) {
  expect(is_small(size.fixed) && is_small(size.per_sample));
  return size;
}

Size sum(const Size& a, const Size& b) {
  return checked({a.fixed + b.fixed, a.per_sample + b.per_sample});
}

int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  expect(!__builtin_mul_overflow(a, b, &result) && is_small(result));
  return result;
}

Size product(const Size& a, const Size& b) {
  expect(a.per_sample == 0 || b.per_sample == 0);
  return checked(
      {product(a.fixed, b.fixed),
       product(a.fixed, b.per_sample) + product(a.per_sample, b.fixed)});
}

// Returns a // b, rounded down.
Size quotient(const Size& a, const Size& b) {
  expect(b.per_sample == 0 && b.fixed > 0 && a.per_sample % b.fixed == 0);
  const bool rounds = a.fixed % b.fixed < 0;
  return {a.fixed / b.fixed - (rounds ? 1 : 0), a.per_sample / b.fixed};
}

Size remainder(const Size& a, const Size& b) {
  const Size whole = product(quotient(a, b), b);
  return {a.fixed - whole.fixed, 0};
}

using Operation = Size (*)(const Size&, const Size&);

struct Function {
  std::string_view name;
  Operation apply;
};
constexpr Function kFunctions[] = {
    {"Add", &sum},           {"Mul", &product},   {"FloorDiv", &quotient},
    {"CleanDiv", &quotient}, {"Mod", &remainder}, {"PythonMod", &remainder},
};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Recursive-descent parser. Methods throw NotLinear.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  // Parses an expression in which `symbol` is the number of samples.
  Size size(const std::string& symbol) {
    expect(++depth_ <= kMostDepth);
    const std::string name = word();
    Size result;
    if (name == "Symbol") {
      expect(symbol_arguments() == symbol);
      result = {0, 1};
    } else if (name == "Integer") {
      result = {integer_argument(), 0};
    } else {
      result = call(name, symbol);
    }
    --depth_;
    return result;
  }

  std::string symbol() {
    expect(word() == "Symbol");
    return symbol_arguments();
  }

  void expect_end() const {
    expect(next_ == text_.size());
  }

 private:
  static constexpr int kMostDepth = 100;

  bool accept(std::string_view token) {
    if (text_.substr(next_, token.size()) != token) {
      return false;
    }
    next_ += token.size();
    return true;
  }

  std::string word() {
    const size_t begin = next_;
    while (next_ < text_.size() && is_word(text_[next_])) {
      ++next_;
    }
    return std::string(text_.substr(begin, next_ - begin));
  }

  // Returns the value of "(a, b, c)": each argument is combined with the result so far.
  Size call(const std::string& name, const std::string& symbol) {
    const auto function = std::find_if(
        std::begin(kFunctions), std::end(kFunctions),
        [&](const Function& row) { return row.name == name; });
    expect(function != std::end(kFunctions) && accept("("));
    Size result = size(symbol);
    while (accept(", ")) {
      result = function->apply(result, size(symbol));
    }
    expect(accept(")"));
    return result;
  }

  // Returns the name in "('s77', positive=True, integer=True)".
  std::string symbol_arguments() {
    expect(accept("('"));
    std::string name = word();
    expect(accept("'"));
    while (accept(", ")) {
      word();
      expect(accept("="));
      word();
    }
    expect(accept(")"));
    return name;
  }

  // Returns the number in "(-7)".
  int64_t integer_argument() {
    expect(accept("("));
    const std::string sign = accept("-") ? "-" : "";
    const auto number = parse_number<int64_t>(sign + word());
    expect(number && is_small(*number) && accept(")"));
    return *number;
  }

  std::string_view text_;
  size_t next_ = 0;
  int depth_ = 0;
};

// Returns the result of `parse`, which must parse the whole expression.
template <typename Parse>
auto parsed(const std::string& expression, const Parse& parse)
    -> std::optional<decltype(parse(std::declval<Parser&>()))> {
  try {
    Parser parser(expression);
    auto result = parse(parser);
    parser.expect_end();
    return result;
  } catch (const NotLinear&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<std::string> symbol_of(const std::string& expression) {
  return parsed(expression, [](Parser& parser) { return parser.symbol(); });
}

std::optional<Size> parse_size(
    const std::string& expression, const std::string& symbol) {
  return parsed(expression, [&](Parser& parser) { return parser.size(symbol); });
}

std::string readable_size(const std::string& expression) {
  constexpr size_t kMostCharacters = 80;
  static constexpr std::string_view kSymbol = "Symbol('";
  std::string text;
  for (size_t next = 0; next < expression.size() && text.size() < kMostCharacters;) {
    if (expression.compare(next, kSymbol.size(), kSymbol) != 0) {
      text += expression[next++];
      continue;
    }
    next += kSymbol.size();
    while (next < expression.size() && is_word(expression[next])) {
      text += expression[next++];
    }
    const size_t end = expression.find(')', next);
    next = end == std::string::npos ? expression.size() : end + 1;
  }
  return text.substr(0, kMostCharacters);
}

}  // namespace tandem
