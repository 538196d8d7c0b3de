#include "tandem/data/npy_format.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;
// A header of version 1.0 cannot be longer. NumPy itself reads at most 10,000 bytes.
constexpr size_t kMostHeaderBytes = 65535;
// NumPy 2 has at most 64 dimensions.
constexpr size_t kMostDims = 64;

// IEEE 754 binary16, which C++17 does not have.
struct Half {
  uint16_t bits;

  explicit operator float() const {
    const int exponent = bits >> 10 & 31;
    const auto mantissa = static_cast<float>(bits & 1023);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float size = exponent == 0   ? std::ldexp(mantissa, -24)
                       : exponent < 31 ? std::ldexp(mantissa + 1024, exponent - 25)
                       : mantissa == 0 ? kInfinity
                                       : std::numeric_limits<float>::quiet_NaN();
    return (bits & 0x8000) != 0 ? -size : size;
  }
};

// Neither array need be aligned.
template <typename From, typename To>
void convert(const uint8_t* from, size_t count, uint8_t* to) {
  for (size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    const auto result = static_cast<To>(value);
    std::memcpy(to + i * sizeof(To), &result, sizeof(To));
  }
}

// Files are written with the first row of a type.
constexpr NpyKind kNpyKinds[] = {
    {"u1", 1, ElementType::uint8, nullptr},
    {"b1", 1, ElementType::uint8, nullptr},
    {"f4", 4, ElementType::float32, nullptr},
    {"f8", 8, ElementType::float32, &convert<double, float>},
    {"f2", 2, ElementType::float32, &convert<Half, float>},
    {"i8", 8, ElementType::int64, nullptr},
    {"i4", 4, ElementType::int64, &convert<int32_t, int64_t>},
    {"i2", 2, ElementType::int64, &convert<int16_t, int64_t>},
    {"i1", 1, ElementType::int64, &convert<int8_t, int64_t>},
    {"u4", 4, ElementType::int64, &convert<uint32_t, int64_t>},
    {"u2", 2, ElementType::int64, &convert<uint16_t, int64_t>},
};

// Returns a shape as Python prints it, such as "(3,)".
std::string numpy_shape(const std::vector<int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

// Returns the kind of elements of a dtype.str, such as "<f4".
const NpyKind& kind_of(std::string_view descr, const std::string& label) {
  const char order = descr.empty() ? '\0' : descr[0];
  const auto code = descr.substr(std::min<size_t>(1, descr.size()));
  const std::string found = "has dtype '" + std::string(descr.substr(0, 40)) + "'";
  for (const auto& kind : kNpyKinds) {
    if (kind.code != code) {
      continue;
    }
    if (order == '<' || (kind.bytes == 1 && order == '|')) {
      return kind;
    }
    if (order == '>') {
      fail_npy(
          label, fmt::format(
                     "{}, which is big-endian, expected '<{}'; save x.astype('<{}')",
                     found, code, code));
    }
  }
  fail_npy(
      label, found + (code == "O" ? " (Python objects)" : "") +
                 ", expected bool, uint8 to uint32, int8 to int64, or float16 to "
                 "float64; save x.astype('float32') or x.astype('int64')");
}

// Parses the Python dictionary in a header.
class NpyDictionary {
 public:
  NpyDictionary(std::string_view text, const std::string& label)
      : text_(text), label_(label) {}

  void parse(NpyHeader& header) {
    std::optional<bool> is_fortran;
    std::optional<std::vector<int64_t>> shape;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && header.kind == nullptr) {
        header.kind = &kind();
      } else if (key == "fortran_order" && !is_fortran) {
        is_fortran = boolean();
      } else if (key == "shape" && !shape) {
        shape = dims();
      } else {
        fail("one 'descr', 'fortran_order' and 'shape'");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ < text_.size()) {
      fail("the end of the header");
    }
    if (header.kind == nullptr || !is_fortran || !shape) {
      fail("'descr', 'fortran_order' and 'shape'");
    }
    if (*is_fortran && shape->size() > 1) {
      fail_npy(
          label_,
          "is in Fortran order, expected C order; save it with "
          "numpy.save(path, numpy.ascontiguousarray(x))");
    }
    header.shape = std::move(*shape);
  }

 private:
  void skip_spaces() {
    at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size());
  }

  // Skips spaces and `wanted`. Returns false if another character follows.
  bool accept(char wanted) {
    skip_spaces();
    const bool found = at_ < text_.size() && text_[at_] == wanted;
    at_ += found ? 1 : 0;
    return found;
  }

  void expect(char wanted) {
    if (!accept(wanted)) {
      fail(std::string("'") + wanted + "'");
    }
  }

  std::string_view quoted() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') {
      expect('\'');
    }
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) {
      fail("a closing quote");
    }
    const auto inside = text_.substr(at_, end - at_);
    at_ = end + 1;
    return inside;
  }

  const NpyKind& kind() {
    if (accept('[') || accept('(')) {
      fail_npy(
          label_,
          "has a structured dtype, expected one number per element; save each field "
          "as an array");
    }
    return kind_of(quoted(), label_);
  }

  bool boolean() {
    skip_spaces();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return word == "True";
      }
    }
    fail("True or False");
  }

  std::vector<int64_t> dims() {
    std::vector<int64_t> dims;
    expect('(');
    while (!accept(')')) {
      dims.push_back(number());
      if (dims.size() > kMostDims) {
        fail(fmt::format("at most {} dimensions", kMostDims));
      }
      // (3) is a number in Python, not a tuple.
      if (dims.size() == 1) {
        expect(',');
      } else if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }

  int64_t number() {
    skip_spaces();
    if (accept('-')) {
      fail_damaged_npy(
          label_, "has a negative dimension in its header, expected 1 or more");
    }
    int64_t value = 0;
    const char* const begin = text_.data();
    const auto [end, error] = std::from_chars(begin + at_, begin + text_.size(), value);
    if (error != std::errc()) {
      fail(
          error == std::errc::result_out_of_range ? "a dimension below 2^63"
                                                  : "a number");
    }
    at_ = static_cast<size_t>(end - begin);
    return value;
  }

  [[noreturn]] void fail(const std::string& expected) const {
    fail_damaged_npy(
        label_, fmt::format(
                    "has a damaged header: expected {} at byte {} of its dictionary",
                    expected, at_));
  }

  const std::string_view text_;
  const std::string& label_;
  size_t at_ = 0;
};

// Reads `size` bytes. Throws DataError if the file ends earlier.
std::string read_text(const ReadBytes& read, size_t size, const std::string& label) {
  std::string text(size, '\0');
  if (read(reinterpret_cast<uint8_t*>(text.data()), size) < size) {
    fail_damaged_npy(label, "ends inside its header");
  }
  return text;
}

// Reads the magic number, the version and the size of the dictionary. Returns the size.
size_t read_prefix(const ReadBytes& read, const std::string& label) {
  const std::string magic = read_text(read, kNpyMagic.size(), label);
  if (magic != kNpyMagic) {
    fail_damaged_npy(label, "is not a .npy file: it does not start with \\x93NUMPY");
  }
  const std::string version = read_text(read, 2, label);
  const int major = static_cast<uint8_t>(version[0]);
  const int minor = static_cast<uint8_t>(version[1]);
  if (major < 1 || major > 3 || minor != 0) {
    fail_damaged_npy(
        label, fmt::format(
                   "has format version {}.{}, expected 1.0, 2.0 or 3.0", major, minor));
  }
  const std::string bytes = read_text(read, major == 1 ? 2 : 4, label);
  uint32_t size = 0;
  std::memcpy(&size, bytes.data(), bytes.size());
  if (size > kMostHeaderBytes) {
    fail_damaged_npy(
        label,
        fmt::format(
            "has a header of {} bytes, expected at most {}", size, kMostHeaderBytes));
  }
  return size;
}

// Returns the product of the dimensions, so that 8 bytes per element fit into 63 bits.
size_t count_elements(const std::vector<int64_t>& shape, const std::string& label) {
  int64_t bytes = 8;
  for (const int64_t dim : shape) {
    if (dim == 0) {
      fail_npy(
          label, "has no elements: its shape is " + numpy_shape(shape) +
                     ", expected dimensions of 1 or more; save an array with elements");
    }
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      fail_damaged_npy(
          label, "has shape " + numpy_shape(shape) +
                     " in its header, expected less than 2^60 elements");
    }
  }
  return static_cast<size_t>(bytes) / 8;
}

}  // namespace

void fail_npy(const std::string& label, const std::string& problem) {
  throw DataError("[data] " + label + " " + problem);
}

void fail_damaged_npy(const std::string& label, const std::string& problem) {
  fail_npy(label, problem + "; save it again with numpy.save or numpy.savez");
}

NpyHeader read_npy_header(
    const ReadBytes& read, uint64_t file_bytes, const std::string& label) {
  NpyHeader header;
  const ReadBytes counted = [&](uint8_t* to, size_t size) {
    const size_t got = read(to, size);
    header.data_offset += got;
    return got;
  };
  const std::string text = read_text(counted, read_prefix(counted, label), label);
  NpyDictionary(text, label).parse(header);
  header.num_elements = count_elements(header.shape, label);
  const uint64_t wanted = header.data_offset + header.num_elements * header.kind->bytes;
  if (file_bytes != wanted) {
    fail_damaged_npy(
        label, fmt::format(
                   "has {} bytes, expected {} for shape {} of dtype '{}' in its header",
                   file_bytes, wanted, numpy_shape(header.shape), header.kind->code));
  }
  return header;
}

NpyArray read_npy_elements(
    const NpyHeader& header, const ReadBytes& read, const std::string& label) {
  const auto read_exactly = [&](uint8_t* to, size_t size) {
    if (read(to, size) < size) {
      fail_damaged_npy(label, "ends inside its data");
    }
  };
  const NpyKind& kind = *header.kind;
  std::vector<uint8_t> elements(header.memory_bytes());
  if (kind.convert == nullptr) {
    read_exactly(elements.data(), elements.size());
  } else {
    constexpr size_t kChunk = 8192;
    std::vector<uint8_t> chunk(std::min(kChunk, header.num_elements) * kind.bytes);
    for (size_t done = 0; done < header.num_elements;) {
      const size_t count = std::min(kChunk, header.num_elements - done);
      read_exactly(chunk.data(), count * kind.bytes);
      kind.convert(chunk.data(), count, elements.data() + done * size_of(kind.type));
      done += count;
    }
  }
  return {kind.type, header.shape, std::move(elements), false, header.is_bool()};
}

std::string npy_header(ElementType type, const std::vector<int64_t>& shape) {
  const auto* kind = std::find_if(
      std::begin(kNpyKinds), std::end(kNpyKinds),
      [type](const NpyKind& row) { return row.type == type; });
  std::string text = std::string("{'descr': '") + (kind->bytes == 1 ? '|' : '<') +
                     std::string(kind->code) +
                     "', 'fortran_order': False, 'shape': " + numpy_shape(shape) +
                     ", }";
  const std::string version("\1\0", 2);
  const size_t prefix = kNpyMagic.size() + version.size() + sizeof(uint16_t);
  text.resize(
      (prefix + text.size()) / kAlignment * kAlignment + kAlignment - prefix, ' ');
  text.back() = '\n';
  const auto size = static_cast<uint16_t>(text.size());
  TANDEM_CHECK(size == text.size(), "the shape has too many dimensions");
  return std::string(kNpyMagic) + version +
         std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text;
}

}  // namespace tandem
