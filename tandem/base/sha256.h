#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tandem {

/// SHA-256 of bytes given piece by piece.
class Sha256 {
 public:
  Sha256();
  ~Sha256();

  void update(const void* data, size_t size);

  /// 64 hex digits. Ends the computation.
  std::string hex_digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The 64 hex digits for bytes that are all in memory.
std::string sha256_hex(const void* data, size_t size);

/// The 64 hex digits for a file. Throws DataError if the file cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace tandem
