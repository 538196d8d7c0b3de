#include "tandem/graph/pt2_json.h"

#include <string_view>

#include "tandem/base/error.h"

namespace tandem {

namespace {

using nlohmann::json;

constexpr int kMostDepth = 100;

// Counts values without storing them.
class Counter : public nlohmann::json_sax<json> {
 public:
  Counter(const std::string& path, size_t most_values)
      : path_(path), most_values_(most_values) {}

  bool null() override {
    return count();
  }
  bool boolean(bool /*value*/) override {
    return count();
  }
  bool number_integer(json::number_integer_t /*value*/) override {
    return count();
  }
  bool number_unsigned(json::number_unsigned_t /*value*/) override {
    return count();
  }
  bool number_float(
      json::number_float_t /*value*/, const json::string_t& /*text*/) override {
    return count();
  }
  bool string(json::string_t& /*value*/) override {
    return count();
  }
  bool binary(json::binary_t& /*value*/) override {
    return count();
  }
  bool key(json::string_t& /*value*/) override {
    return count();
  }
  bool start_object(std::size_t /*elements*/) override {
    return begin();
  }
  bool start_array(std::size_t /*elements*/) override {
    return begin();
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(
      std::size_t position, const std::string& /*last*/,
      const json::exception& /*error*/) override {
    fail_pt2(path_, "has JSON that is invalid at byte " + std::to_string(position));
  }

 private:
  bool count() {
    if (++count_ > most_values_) {
      refuse_pt2(
          path_, "has more than " + std::to_string(most_values_) +
                     " values in its JSON, too many for the size of the file; export "
                     "the model again with torch.export.save");
    }
    return true;
  }

  bool begin() {
    if (++depth_ > kMostDepth) {
      fail_pt2(path_, "has JSON that is nested too deeply");
    }
    return count();
  }

  const std::string& path_;
  const size_t most_values_;
  size_t count_ = 0;
  int depth_ = 0;
};

// torch 2.6 writes infinity and NaN as Python does, which is not JSON. Later versions
// write texts.
std::string quote_infinities(const std::string& text) {
  static constexpr std::string_view kNumbers[] = {"-Infinity", "Infinity", "NaN"};
  std::string quoted;
  quoted.reserve(text.size());
  bool inside = false;
  for (size_t next = 0; next < text.size(); ++next) {
    const char c = text[next];
    if (inside) {
      quoted += c;
      inside = c != '"';
      if (c == '\\' && next + 1 < text.size()) {
        quoted += text[++next];
      }
      continue;
    }
    inside = c == '"';
    std::string_view number;
    for (const auto candidate : kNumbers) {
      if (number.empty() && text.compare(next, candidate.size(), candidate) == 0) {
        number = candidate;
      }
    }
    if (number.empty()) {
      quoted += c;
      continue;
    }
    quoted += '"';
    quoted += number;
    quoted += '"';
    next += number.size() - 1;
  }
  return quoted;
}

template <typename T>
struct EnumRow {
  int64_t number;
  T value;
};

constexpr EnumRow<at::ScalarType> kPt2Dtypes[] = {
    {1, at::kByte},  {2, at::kChar},      {3, at::kShort}, {4, at::kInt},
    {5, at::kLong},  {6, at::kHalf},      {7, at::kFloat}, {8, at::kDouble},
    {12, at::kBool}, {13, at::kBFloat16},
};
constexpr EnumRow<at::Layout> kPt2Layouts[] = {{7, at::kStrided}};
constexpr EnumRow<at::MemoryFormat> kPt2MemoryFormats[] = {
    {1, at::MemoryFormat::Contiguous},
    {2, at::MemoryFormat::ChannelsLast},
    {3, at::MemoryFormat::ChannelsLast3d},
    {4, at::MemoryFormat::Preserve},
};

template <typename Rows>
auto from_number(const Rows& rows, int64_t number)
    -> std::optional<decltype(rows[0].value)> {
  for (const auto& row : rows) {
    if (row.number == number) {
      return row.value;
    }
  }
  return std::nullopt;
}

template <typename Rows, typename T>
std::optional<int64_t> to_number(const Rows& rows, T value) {
  for (const auto& row : rows) {
    if (row.value == value) {
      return row.number;
    }
  }
  return std::nullopt;
}

}  // namespace

void fail_pt2(const std::string& path, const std::string& what) {
  throw DataError(
      "[model] '" + path + "' " + what +
      "; export the model again with torch.export.save");
}

void refuse_pt2(const std::string& path, const std::string& what) {
  throw ConfigError("[model] '" + path + "' " + what);
}

json parse_json(
    const std::string& text, const std::string& path, size_t most_values,
    const std::function<void(int depth, const std::string& name)>& on_name) {
  const std::string valid = quote_infinities(text);
  // The JSON library treats a zero byte as the end and ignores the rest.
  if (valid.find('\0') != std::string::npos) {
    fail_pt2(path, "has JSON with a zero byte");
  }
  Counter counter(path, most_values);
  json::sax_parse(valid, &counter);
  if (!on_name) {
    return json::parse(valid);
  }
  return json::parse(valid, [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key) {
      on_name(depth, string_of(value));
    }
    return true;
  });
}

int64_t integer_of(const json& value) {
  return value.get_ref<const json::number_integer_t&>();
}

const std::string& string_of(const json& value) {
  return value.get_ref<const std::string&>();
}

const std::string& kind_of(const json& value) {
  static const std::string none;
  const auto& object = value.get_ref<const json::object_t&>();
  return object.size() == 1 ? object.begin()->first : none;
}

std::optional<at::ScalarType> pt2_dtype(int64_t number) {
  return from_number(kPt2Dtypes, number);
}

std::optional<at::Layout> pt2_layout(int64_t number) {
  return from_number(kPt2Layouts, number);
}

std::optional<at::MemoryFormat> pt2_memory_format(int64_t number) {
  return from_number(kPt2MemoryFormats, number);
}

std::optional<int64_t> pt2_number(at::ScalarType dtype) {
  return to_number(kPt2Dtypes, dtype);
}

std::optional<int64_t> pt2_number(at::Layout layout) {
  return to_number(kPt2Layouts, layout);
}

std::optional<int64_t> pt2_number(at::MemoryFormat format) {
  return to_number(kPt2MemoryFormats, format);
}

}  // namespace tandem
