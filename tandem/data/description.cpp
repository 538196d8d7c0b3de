#include "tandem/data/description.h"

#include <cstdlib>
#include <sstream>

namespace tandem {

namespace {

// Largest number of sizes of a sample.
constexpr size_t kMostSizes = 16;

void put(const Samples& samples, std::ostream& out) {
  out << static_cast<int>(samples.type) << ' ' << samples.shape.size();
  for (const int64_t size : samples.shape) {
    out << ' ' << size;
  }
  out << '\n';
}

// Multiplies `all` by a factor. Returns false if the factor is negative or the product
// is greater than `most`.
bool multiply(size_t& all, int64_t factor, size_t most) {
  return factor >= 0 &&
         !__builtin_mul_overflow(all, static_cast<size_t>(factor), &all) && all <= most;
}

// Returns whether a sample, and `count` samples, have at most `most` bytes.
bool fits(const Samples& samples, int64_t count, size_t most) {
  size_t bytes = size_of(samples.type);
  for (const int64_t size : samples.shape) {
    if (!multiply(bytes, size, most)) {
      return false;
    }
  }
  return multiply(bytes, count, most);
}

// Writes a text after its number of bytes, because it may have line breaks.
void put(const std::string& text, std::ostream& out) {
  out << text.size() << ' ' << text << '\n';
}

bool take(std::istream& in, std::string& text, size_t most) {
  size_t size = 0;
  in >> size;
  in.ignore();
  if (!in || size > most) {
    return false;
  }
  text.resize(size);
  in.read(text.data(), static_cast<std::streamsize>(size));
  return static_cast<bool>(in);
}

void put(const std::vector<double>& numbers, std::ostream& out) {
  out << numbers.size() << std::hexfloat;
  for (const double number : numbers) {
    out << ' ' << number;
  }
  out << std::defaultfloat << '\n';
}

bool take(std::istream& in, std::vector<double>& numbers, size_t most) {
  size_t count = 0;
  in >> count;
  for (size_t i = 0; in && i < count && count <= most; ++i) {
    // The operator >> does not read hexadecimal numbers.
    std::string text;
    in >> text;
    numbers.push_back(std::strtod(text.c_str(), nullptr));
  }
  return in && count <= most;
}

bool take(std::istream& in, Samples& samples) {
  int type = 0;
  size_t num_sizes = 0;
  in >> type >> num_sizes;
  if (!in || type < 0 || type > static_cast<int>(ElementType::int64) ||
      num_sizes > kMostSizes) {
    return false;
  }
  samples.type = static_cast<ElementType>(type);
  for (size_t i = 0; i < num_sizes; ++i) {
    in >> samples.shape.emplace_back();
  }
  return static_cast<bool>(in);
}

}  // namespace

std::string describe(const Dataset& data) {
  const DataHashes hashes = hashes_of(data);
  std::ostringstream out;
  out << data.name << '\n'
      << hashes.inputs << ' ' << hashes.targets << '\n'
      << data.size << ' ' << data.num_classes << ' ' << data.tokens << ' '
      << data.is_sequence << ' ' << data.is_loadable << ' ' << data.class_names.size()
      << '\n';
  put(data.inputs, out);
  put(data.targets, out);
  put(data.mean, out);
  put(data.std, out);
  put(data.target_mean, out);
  put(data.target_std, out);
  put(data.columns, out);
  for (const auto& name : data.class_names) {
    put(name, out);
  }
  return out.str();
}

std::optional<Dataset> read_description(std::istream& in, size_t most) {
  Dataset data;
  std::getline(in, data.name);
  size_t num_names = 0;
  in >> data.hashes.inputs >> data.hashes.targets >> data.size >> data.num_classes >>
      data.tokens >> data.is_sequence >> data.is_loadable >> num_names;
  if (!take(in, data.inputs) || !take(in, data.targets) || !take(in, data.mean, most) ||
      !take(in, data.std, most) || !take(in, data.target_mean, most) ||
      !take(in, data.target_std, most) || !take(in, data.columns, most) ||
      num_names > most || !fits(data.inputs, data.size, most) ||
      !fits(data.targets, data.size, most)) {
    return std::nullopt;
  }
  for (size_t i = 0; i < num_names; ++i) {
    if (!take(in, data.class_names.emplace_back(), most)) {
      return std::nullopt;
    }
  }
  in.ignore();  // the line break after the last text
  return in ? std::optional(data) : std::nullopt;
}

}  // namespace tandem
