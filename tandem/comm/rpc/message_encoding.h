#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/rpc/rpc.h"

namespace tandem {

// Bytes of a message between two ranks over TCP. Integers have the byte order of the
// CPU, like the tensors' data.
//
//   frame       = start, description, data of each tensor (row-major)
//   start       = id, bytes of the description, bytes of all data (64 bits each)
//   description = bytes of the header (64 bits), header, number of tensors (64 bits),
//                 for each tensor: dtype and number of dimensions (8 bits each), sizes
//                 (64 bits each)
//
// The functions check received counts and sizes before they allocate memory.

/// Start of a frame.
struct FrameStart {
  // Number of the request. An answer has the number of its request.
  uint64_t id = 0;
  uint64_t description_bytes = 0;
  uint64_t data_bytes = 0;
};

constexpr size_t kFrameStartBytes = sizeof(FrameStart);
/// Maximum size of a description, in bytes.
constexpr uint64_t kMostDescriptionBytes = uint64_t{64} << 20;
/// Maximum number of tensors of a message.
constexpr uint64_t kMostTensors = uint64_t{1} << 16;
/// Maximum size of the data of a message, in bytes.
constexpr uint64_t kMostDataBytes = uint64_t{64} << 30;

/// A frame to send.
struct EncodedMessage {
  // Start and description.
  std::string text;
  // The message's tensors, contiguous. Their data follow the text.
  std::vector<at::Tensor> tensors;
};

/// Encodes a message whose tensors are in main memory. Copies only tensors that are not
/// contiguous.
///
/// Throws ConfigError if a tensor is sparse or quantized, or if the message exceeds a
/// maximum.
EncodedMessage encode(uint64_t id, const RpcMessage& message);

/// Decodes the kFrameStartBytes bytes of a start. Returns nullopt if the description or
/// the data would be longer than the maximum.
std::optional<FrameStart> decode_start(const std::string& bytes);

/// Decodes a description. Returns the message, whose tensors have undefined values.
/// Returns nullopt if the bytes are not a description, or if the tensors do not have
/// `data_bytes` bytes in total.
std::optional<RpcMessage> decode_description(
    const std::string& bytes, uint64_t data_bytes);

}  // namespace tandem
