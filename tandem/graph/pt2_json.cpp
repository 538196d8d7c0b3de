#include "tandem/graph/pt2_json.h"

#include <string_view>

#include "tandem/base/error.h"
#include "tandem/formats/dtypes.h"

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
                     " values in its JSON, too many for the size of the file; " +
                     kExportAgain);
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

constexpr int64_t kPt2Strided = 7;

struct MemoryFormatNumber {
  int64_t number;
  at::MemoryFormat format;
};
constexpr MemoryFormatNumber kPt2MemoryFormats[] = {
    {1, at::MemoryFormat::Contiguous},
    {2, at::MemoryFormat::ChannelsLast},
    {3, at::MemoryFormat::ChannelsLast3d},
    {4, at::MemoryFormat::Preserve},
};

}  // namespace

void fail_pt2(const std::string& path, const std::string& what) {
  throw DataError("[model] '" + path + "' " + what + "; " + kExportAgain);
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
  const FileDtype* row = find_dtype(&FileDtype::pt2, number);
  return row == nullptr ? std::nullopt : std::optional(row->dtype);
}

std::optional<at::Layout> pt2_layout(int64_t number) {
  return number == kPt2Strided ? std::optional(at::kStrided) : std::nullopt;
}

std::optional<at::MemoryFormat> pt2_memory_format(int64_t number) {
  for (const auto& row : kPt2MemoryFormats) {
    if (row.number == number) {
      return row.format;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> pt2_number(at::ScalarType dtype) {
  const FileDtype* row = find_dtype(dtype);
  return row == nullptr ? std::nullopt : std::optional(row->pt2);
}

std::optional<int64_t> pt2_number(at::Layout layout) {
  return layout == at::kStrided ? std::optional(kPt2Strided) : std::nullopt;
}

std::optional<int64_t> pt2_number(at::MemoryFormat format) {
  for (const auto& row : kPt2MemoryFormats) {
    if (row.format == format) {
      return row.number;
    }
  }
  return std::nullopt;
}

}  // namespace tandem
