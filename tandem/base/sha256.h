#pragma once

#include <cstddef>
#include <memory>
#include <string>

// OpenSSL's EVP_MD_CTX.
struct evp_md_ctx_st;

namespace tandem {

/// Computes the SHA-256 of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();

  /// Adds `size` bytes to the data to hash.
  void update(const void* data, size_t size);

  /// Returns the hash as 64 hex digits. Call it once, after the last update().
  std::string hex_digest();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

/// Returns the SHA-256 of bytes in memory, as 64 hex digits.
std::string sha256_hex(const void* data, size_t size);

/// Returns the SHA-256 of a file, as 64 hex digits. Throws DataError if it cannot be
/// read.
std::string sha256_of_file(const std::string& path);

}  // namespace tandem
