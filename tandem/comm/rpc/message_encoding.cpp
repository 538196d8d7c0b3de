#include "tandem/comm/rpc/message_encoding.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

namespace {

template <typename Number>
void put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Reads numbers and texts. After the end of the bytes, ok() is false.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  template <typename Number>
  Number number() {
    Number value{};
    if (has(sizeof(value))) {
      std::memcpy(&value, bytes_.data() + at_, sizeof(value));
      at_ += sizeof(value);
    }
    return value;
  }

  std::string text(uint64_t size) {
    if (!has(size)) {
      return "";
    }
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  bool ok() const {
    return ok_;
  }
  bool at_end() const {
    return ok_ && at_ == bytes_.size();
  }

 private:
  bool has(uint64_t size) {
    ok_ = ok_ && size <= bytes_.size() - at_;
    return ok_;
  }

  const std::string& bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

// Returns whether the values of a dtype are plain bytes. Returns false for a number
// that is no dtype.
bool is_plain(at::ScalarType dtype) {
  switch (dtype) {
#define TANDEM_CASE(type, name) case at::ScalarType::name:
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(TANDEM_CASE)
#undef TANDEM_CASE
    return true;
    default:
      return false;
  }
}

struct Shape {
  at::ScalarType dtype = at::kByte;
  std::vector<int64_t> sizes;
  uint64_t bytes = 0;
};

// Sets `shape.bytes`. Returns false if a size is negative or if the tensor would be too
// long. Counts a size of 0 as 1 for this check, because strides are products too.
bool count_bytes(Shape& shape) {
  const uint64_t item = at::elementSize(shape.dtype);
  uint64_t most = kMostDataBytes / item;
  for (const int64_t size : shape.sizes) {
    const auto factor = static_cast<uint64_t>(std::max<int64_t>(1, size));
    if (size < 0 || factor > most) {
      return false;
    }
    most /= factor;
  }
  shape.bytes = item;
  for (const int64_t size : shape.sizes) {
    shape.bytes *= static_cast<uint64_t>(size);
  }
  return true;
}

bool read_shape(Reader& reader, Shape& shape) {
  shape.dtype = static_cast<at::ScalarType>(reader.number<uint8_t>());
  const auto dims = reader.number<uint8_t>();
  for (int i = 0; i < dims && reader.ok(); ++i) {
    shape.sizes.push_back(reader.number<int64_t>());
  }
  return reader.ok() && is_plain(shape.dtype) && count_bytes(shape);
}

void check_plain(const at::Tensor& tensor) {
  constexpr int64_t kMostDims = 255;
  if (tensor.layout() != at::kStrided || !is_plain(tensor.scalar_type()) ||
      tensor.dim() > kMostDims) {
    throw ConfigError(
        "[comm] tensor of a message is sparse or quantized, expected plain values; "
        "convert it before the call");
  }
}

}  // namespace

EncodedMessage encode(uint64_t id, const RpcMessage& message) {
  EncodedMessage encoded;
  std::string text;
  uint64_t data_bytes = 0;
  put<uint64_t>(text, message.header.size());
  text += message.header;
  put<uint64_t>(text, message.tensors.size());
  for (const auto& tensor : message.tensors) {
    check_plain(tensor);
    put(text, static_cast<uint8_t>(tensor.scalar_type()));
    put(text, static_cast<uint8_t>(tensor.dim()));
    for (const int64_t size : tensor.sizes()) {
      put(text, size);
    }
    // Without resolve_conj(), the data of a conjugated view would be those of its base.
    encoded.tensors.push_back(tensor.resolve_conj().resolve_neg().contiguous());
    data_bytes += tensor.nbytes();
  }
  if (text.size() > kMostDescriptionBytes || message.tensors.size() > kMostTensors ||
      data_bytes > kMostDataBytes) {
    throw ConfigError(fmt::format(
        "[comm] message has a header of {} bytes and {} tensors of {} bytes, expected "
        "at most 64 MiB, {} tensors and 64 GiB; send several messages",
        message.header.size(), message.tensors.size(), data_bytes, kMostTensors));
  }
  put(encoded.text, FrameStart{id, text.size(), data_bytes});
  encoded.text += text;
  return encoded;
}

std::optional<FrameStart> decode_start(const std::string& bytes) {
  FrameStart start;
  if (bytes.size() != kFrameStartBytes) {
    return std::nullopt;
  }
  std::memcpy(&start, bytes.data(), kFrameStartBytes);
  return start.description_bytes <= kMostDescriptionBytes &&
                 start.data_bytes <= kMostDataBytes
             ? std::optional(start)
             : std::nullopt;
}

std::optional<RpcMessage> decode_description(
    const std::string& bytes, uint64_t data_bytes) {
  Reader reader(bytes);
  RpcMessage message;
  message.header = reader.text(reader.number<uint64_t>());
  const auto count = reader.number<uint64_t>();
  if (count > kMostTensors) {
    return std::nullopt;
  }
  std::vector<Shape> shapes;
  uint64_t left = data_bytes;
  for (uint64_t i = 0; i < count; ++i) {
    Shape shape;
    if (!read_shape(reader, shape) || shape.bytes > left) {
      return std::nullopt;
    }
    left -= shape.bytes;
    shapes.push_back(std::move(shape));
  }
  if (!reader.at_end() || left > 0) {
    return std::nullopt;
  }
  for (const auto& shape : shapes) {
    message.tensors.push_back(at::empty(shape.sizes, shape.dtype));
  }
  return message;
}

}  // namespace tandem
