#include "tandem/data/csv_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// True for a byte that ends a cell without quotes, or is not allowed in the cell.
constexpr std::array<bool, 256> bytes_after_plain_cell() {
  std::array<bool, 256> table{};
  for (const char byte : {',', '\n', '\r', '"'}) {
    table[static_cast<unsigned char>(byte)] = true;
  }
  return table;
}
constexpr std::array<bool, 256> kAfterPlainCell = bytes_after_plain_cell();

std::string_view without_mark(std::string_view text) {
  const bool marked = text.substr(0, kByteOrderMark.size()) == kByteOrderMark;
  return marked ? text.substr(kByteOrderMark.size()) : text;
}

std::string_view without_line_ends(std::string_view text) {
  while (!text.empty() && text.back() == '\n') {
    text.remove_suffix(1);
    if (!text.empty() && text.back() == '\r') {
      text.remove_suffix(1);
    }
  }
  return text;
}

bool is_space(char byte) {
  return byte == ' ' || byte == '\t';
}

std::string_view trimmed(std::string_view cell) {
  while (!cell.empty() && is_space(cell.front())) {
    cell.remove_prefix(1);
  }
  while (!cell.empty() && is_space(cell.back())) {
    cell.remove_suffix(1);
  }
  return cell;
}

std::string unescape(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    i += text[i] == '"' ? 1 : 0;
  }
  return result;
}

// Returns a number that std::from_chars() rejects as float32: 0 if it is too small,
// infinity otherwise.
float number_out_of_range(const char* first, const char* last) {
  constexpr double kMost = std::numeric_limits<float>::max();
  double number = 0;
  const auto error = std::from_chars(first, last, number).ec;
  return error == std::errc() && std::abs(number) < kMost
             ? static_cast<float>(number)
             : std::numeric_limits<float>::infinity();
}

}  // namespace

CsvRows::CsvRows(std::string_view text, std::string path, size_t most_cells)
    : path_(std::move(path)), most_cells_(most_cells) {
  if (const size_t at = text.find('\0'); at != std::string_view::npos) {
    row_line_ += std::count(text.begin(), text.begin() + at, '\n');
    fail("has a NUL byte, expected text in UTF-8; save the file as CSV in UTF-8");
  }
  if (const auto at = find_invalid_utf8(text)) {
    const size_t line_begin = text.substr(0, *at).rfind('\n') + 1;
    row_line_ += std::count(text.begin(), text.begin() + *at, '\n');
    fail(
        "has " + *describe_invalid_utf8(text.substr(line_begin)) +
        ", expected text in UTF-8; convert the file, for example with iconv -f LATIN1 "
        "-t UTF-8");
  }
  text = without_line_ends(without_mark(text));
  at_ = text.data();
  end_ = text.data() + text.size();
  ended_ = text.empty();
}

void CsvRows::fail(const std::string& what) const {
  throw DataError(fmt::format("[data] line {} of '{}' {}", row_line_, path_, what));
}

void CsvRows::fail_in(std::string_view column, const std::string& what) const {
  throw DataError(fmt::format(
      "[data] column {} in line {} of '{}' {}", csv_excerpt(column), row_line_, path_,
      what));
}

bool CsvRows::next() {
  cells_.clear();
  unescaped_.clear();
  num_cells_ = 0;
  row_line_ = line_;
  if (ended_) {
    return false;
  }
  if (*at_ == '\n' || (*at_ == '\r' && end_ - at_ > 1 && at_[1] == '\n')) {
    fail("is empty, expected cells; remove the line");
  }
  while (read_cell()) {
  }
  return true;
}

// Reads a cell and the comma or line end after it. Returns whether the row has another
// cell.
bool CsvRows::read_cell() {
  const bool quoted = at_ != end_ && *at_ == '"';
  if (quoted) {
    read_quoted();
  } else {
    read_plain();
  }
  if (at_ == end_) {
    ended_ = true;
    return false;
  }
  if (*at_ == ',') {
    ++at_;
    return true;
  }
  const bool has_return = *at_ == '\r';
  at_ += has_return ? 1 : 0;
  if (at_ != end_ && *at_ == '\n') {
    ++at_;
    ++line_;
    return false;
  }
  row_line_ = line_;
  if (has_return) {
    fail(
        "has a carriage return without a line feed, expected LF or CRLF; convert the "
        "line ends");
  }
  fail(
      quoted ? "has text after a closing quote, expected a comma; double the quotes "
               "inside the cell"
             : "has a quote in a cell without quotes; put quotes around the cell and "
               "double the quotes inside it");
}

void CsvRows::read_plain() {
  const char* last = at_;
  while (last != end_ && !kAfterPlainCell[static_cast<unsigned char>(*last)]) {
    ++last;
  }
  add({at_, static_cast<size_t>(last - at_)});
  at_ = last;
}

void CsvRows::read_quoted() {
  const char* const first = ++at_;
  const int64_t first_line = line_;
  bool escaped = false;
  while (true) {
    const auto* quote = static_cast<const char*>(
        std::memchr(at_, '"', static_cast<size_t>(end_ - at_)));
    if (quote == nullptr) {
      row_line_ = first_line;
      fail("has a quote that is not closed; add the closing quote");
    }
    line_ += std::count(at_, quote, '\n');
    at_ = quote + 1;
    if (at_ == end_ || *at_ != '"') {
      break;
    }
    escaped = true;
    ++at_;
  }
  const std::string_view text(first, static_cast<size_t>(at_ - 1 - first));
  if (escaped && num_cells_ < most_cells_) {
    add(unescaped_.emplace_back(unescape(text)));
  } else {
    add(text);
  }
}

void CsvRows::add(std::string_view cell) {
  if (num_cells_ < most_cells_) {
    cells_.push_back(cell);
  }
  ++num_cells_;
}

std::string quoted_cell(std::string_view text) {
  std::string cell = "\"";
  for (const char byte : text) {
    cell.append(byte == '"' ? 2 : 1, byte);
  }
  return cell + '"';
}

std::string csv_cell(std::string_view text) {
  // A header with another separator, or with a byte order mark, is ambiguous without
  // quotes.
  const bool plain = !text.empty() &&
                     text.find_first_of(",;\t\"\r\n") == std::string_view::npos &&
                     without_mark(text).size() == text.size();
  return plain ? std::string(text) : quoted_cell(text);
}

bool is_blank(std::string_view cell) {
  return trimmed(cell).empty();
}

std::optional<float> csv_number(std::string_view cell) {
  cell = trimmed(cell);
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') {
    cell.remove_prefix(1);
  }
  const char* const last = cell.data() + cell.size();
  float number = 0;
  const auto [end, error] = std::from_chars(cell.data(), last, number);
  if (end != last || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  return error == std::errc() ? number : number_out_of_range(cell.data(), last);
}

bool has_number_separators(std::string_view cell) {
  cell = trimmed(cell);
  if (!cell.empty() && (cell[0] == '-' || cell[0] == '+')) {
    cell.remove_prefix(1);
  }
  // Separators, and the number of digits before each of them and at the end.
  std::string separators;
  std::vector<size_t> digits(1);
  for (const char byte : cell) {
    if (byte >= '0' && byte <= '9') {
      ++digits.back();
    } else if (std::string_view(",. '").find(byte) != std::string_view::npos) {
      separators += byte;
      digits.push_back(0);
    } else {
      return false;
    }
  }
  if (separators == ",") {
    return digits[0] > 0 && digits[1] > 0;
  }
  const char last = separators.empty() ? ' ' : separators.back();
  const bool has_decimals = (last == ',' || last == '.') && last != separators[0];
  const size_t num_groups = digits.size() - (has_decimals ? 1 : 0);
  const bool are_groups = std::all_of(
      digits.begin() + 1, digits.begin() + num_groups,
      [](size_t count) { return count == 3; });
  const bool are_equal = separators.find_first_not_of(separators[0]) >= num_groups - 1;
  return num_groups > 1 && digits[0] >= 1 && digits[0] <= 3 && are_groups &&
         are_equal && digits.back() > 0;
}

std::string csv_excerpt(std::string_view text) {
  size_t size = 40;
  if (text.size() <= size) {
    return "'" + std::string(text) + "'";
  }
  // Bytes 10xxxxxx continue a UTF-8 character.
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) {
    --size;
  }
  return "'" + std::string(text.substr(0, size)) + "...'";
}

}  // namespace tandem
