#include "tandem/base/sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <fstream>
#include <vector>

#include "tandem/base/files.h"

namespace tandem {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
}

void Sha256::update(const void* data, size_t size) {
  EVP_DigestUpdate(context_.get(), data, size);
}

std::string Sha256::hex_digest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), digest, &size);
  return fmt::format("{:02x}", fmt::join(digest, digest + size, ""));
}

std::string sha256_hex(const void* data, size_t size) {
  Sha256 hash;
  hash.update(data, size);
  return hash.hex_digest();
}

std::string sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> chunk(size_t{1} << 20);
  Sha256 hash;
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    hash.update(chunk.data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.eof()) {
    fail_on_file("read", path);
  }
  return hash.hex_digest();
}

}  // namespace tandem
