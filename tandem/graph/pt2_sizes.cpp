#include "tandem/graph/pt2_sizes.h"

#include <cctype>
#include <string_view>

namespace tandem {

namespace {

using Result = std::optional<Size>;

bool is_small(int64_t number) {
  return number >= -kLargestSize && number <= kLargestSize;
}

Result checked(int64_t fixed, int64_t per_sample) {
  return is_small(fixed) && is_small(per_sample) ? Result(Size{fixed, per_sample})
                                                 : std::nullopt;
}

Result sum(const Size& a, const Size& b) {
  return checked(a.fixed + b.fixed, a.per_sample + b.per_sample);
}

Result product(const Size& a, const Size& b) {
  if (a.per_sample != 0 && b.per_sample != 0) {
    return std::nullopt;
  }
  int64_t fixed = 0;
  int64_t first = 0;
  int64_t second = 0;
  if (__builtin_mul_overflow(a.fixed, b.fixed, &fixed) ||
      __builtin_mul_overflow(a.fixed, b.per_sample, &first) ||
      __builtin_mul_overflow(a.per_sample, b.fixed, &second) || !is_small(first) ||
      !is_small(second)) {
    return std::nullopt;
  }
  return checked(fixed, first + second);
}

// Returns a // b, rounded down.
Result quotient(const Size& a, const Size& b) {
  if (b.per_sample != 0 || b.fixed <= 0 || a.per_sample % b.fixed != 0) {
    return std::nullopt;
  }
  const int64_t rest = a.fixed % b.fixed;
  return Size{a.fixed / b.fixed - (rest < 0 ? 1 : 0), a.per_sample / b.fixed};
}

Result remainder(const Size& a, const Size& b) {
  if (b.per_sample != 0 || b.fixed <= 0 || a.per_sample % b.fixed != 0) {
    return std::nullopt;
  }
  const int64_t rest = a.fixed % b.fixed;
  return Size{rest < 0 ? rest + b.fixed : rest, 0};
}

using Operation = Result (*)(const Size&, const Size&);

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

// Recursive-descent parser. Every method returns nothing on failure.
class Parser {
 public:
  Parser(std::string_view text, std::string_view symbol)
      : text_(text), symbol_(symbol) {}

  Result parse() {
    const auto size = parse_sum();
    return at_end() ? size : std::nullopt;
  }

  // Returns the symbol if the text has nothing else.
  std::optional<std::string> parse_symbol() {
    const auto name = word();
    if (name == "Symbol") {
      const auto symbol = symbol_arguments();
      return at_end() ? symbol : std::nullopt;
    }
    return at_end() && is_symbol(name) ? std::optional<std::string>(name)
                                       : std::nullopt;
  }

 private:
  static constexpr int kMostDepth = 100;

  static bool is_symbol(std::string_view name) {
    return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0;
  }

  void skip_spaces() {
    while (next_ < text_.size() && text_[next_] == ' ') {
      ++next_;
    }
  }
  bool at_end() {
    skip_spaces();
    return next_ == text_.size();
  }
  bool accept(std::string_view token) {
    skip_spaces();
    if (text_.substr(next_, token.size()) != token) {
      return false;
    }
    next_ += token.size();
    return true;
  }

  std::string word() {
    skip_spaces();
    const size_t begin = next_;
    while (next_ < text_.size() && is_word(text_[next_])) {
      ++next_;
    }
    return std::string(text_.substr(begin, next_ - begin));
  }

  Result parse_sum() {
    if (++depth_ > kMostDepth) {
      return std::nullopt;
    }
    auto size = parse_product();
    while (size) {
      if (accept("+")) {
        size = apply(&sum, *size, parse_product());
      } else if (accept("-")) {
        size = apply(&sum, *size, negative(parse_product()));
      } else {
        break;
      }
    }
    --depth_;
    return size;
  }

  Result parse_product() {
    auto size = parse_factor();
    while (size) {
      if (accept("//")) {
        size = apply(&quotient, *size, parse_factor());
      } else if (accept("*")) {
        size = apply(&product, *size, parse_factor());
      } else {
        break;
      }
    }
    return size;
  }

  Result parse_factor() {
    bool minus = false;
    while (accept("-")) {
      minus = !minus;
    }
    const auto size = parse_atom();
    return minus ? negative(size) : size;
  }

  Result parse_atom() {
    if (accept("(")) {
      const auto size = parse_sum();
      return accept(")") ? size : std::nullopt;
    }
    const std::string name = word();
    if (name == "Symbol") {
      const auto symbol = symbol_arguments();
      return symbol ? samples(*symbol) : std::nullopt;
    }
    if (name == "Integer") {
      const auto size = accept("(") ? parse_sum() : std::nullopt;
      return accept(")") ? size : std::nullopt;
    }
    for (const auto& function : kFunctions) {
      if (name == function.name) {
        return parse_call(function.apply);
      }
    }
    return is_symbol(name) ? samples(name) : number(name);
  }

  // Returns the value of "(a, b, c)": each argument is combined with the result so far.
  Result parse_call(Operation operation) {
    if (!accept("(")) {
      return std::nullopt;
    }
    auto size = parse_sum();
    while (size && accept(",")) {
      size = apply(operation, *size, parse_sum());
    }
    return accept(")") ? size : std::nullopt;
  }

  // Returns the name in "('s77', positive=True, integer=True)".
  std::optional<std::string> symbol_arguments() {
    if (!accept("(") || !accept("'")) {
      return std::nullopt;
    }
    const std::string name = word();
    if (!accept("'")) {
      return std::nullopt;
    }
    while (accept(",")) {
      word();
      accept("=");
      word();
    }
    return accept(")") ? std::optional<std::string>(name) : std::nullopt;
  }

  Result samples(std::string_view name) const {
    return name == symbol_ ? Result(Size{0, 1}) : std::nullopt;
  }

  static Result number(const std::string& digits) {
    constexpr size_t kMostDigits = 13;
    if (digits.empty() || digits.size() > kMostDigits ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      return std::nullopt;
    }
    return checked(std::stoll(digits), 0);
  }

  static Result negative(const Result& size) {
    return size ? Result(Size{-size->fixed, -size->per_sample}) : std::nullopt;
  }

  static Result apply(Operation operation, const Size& a, const Result& b) {
    return b ? operation(a, *b) : std::nullopt;
  }

  std::string_view text_;
  std::string_view symbol_;
  size_t next_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<std::string> symbol_of(const std::string& expression) {
  return Parser(expression, "").parse_symbol();
}

std::optional<Size> parse_size(
    const std::string& expression, const std::string& symbol) {
  return Parser(expression, symbol).parse();
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
