#pragma once

#include <random>
#include <string>
#include <vector>

#include "tandem/base/store/protocol.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace tandem::fuzz {

/// Removes the complete frames at the front of `bytes`, and returns their contents.
inline std::vector<std::string> take_frames(std::string& bytes) {
  std::vector<std::string> frames;
  while (bytes.size() >= 4) {
    const size_t length = store_protocol::decode_length(bytes.data());
    if (bytes.size() < 4 + length) {
      break;
    }
    frames.push_back(bytes.substr(4, length));
    bytes.erase(0, 4 + length);
  }
  return frames;
}

inline void mutate(std::string& text) {
  const size_t size = text.size();
  text.resize(size + 16);
  text.resize(
      LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
}

/// Returns a frame after a random change: another operation, an added text, a removed
/// text or a changed text. The lengths in the frame stay valid; they rarely stay valid
/// if single bytes are changed.
inline std::string mutated_frame(const std::string& frame, std::minstd_rand& random) {
  store_protocol::Request request;
  std::string changed = frame;
  if (!store_protocol::decode(frame, request)) {
    mutate(changed);
    return changed;
  }
  const size_t choice = random() % 4;
  if (choice == 0) {
    request.operation = static_cast<store_protocol::Operation>(random() % 11);
  } else if (choice == 1 || request.texts.empty()) {
    request.texts.emplace_back("k");
  } else if (choice == 2) {
    request.texts.pop_back();
  } else {
    mutate(request.texts[random() % request.texts.size()]);
  }
  return store_protocol::encode(request);
}

}  // namespace tandem::fuzz
