#pragma once

#include <dnnl.hpp>
#include <memory>
#include <vector>

namespace tandem {

/// Memory for the values of one plan. A plan that makes its memory in the order of its
/// operations can release a value after the last operation that reads it; later values
/// then use the memory again. Not thread-safe.
class MemoryPool {
 public:
  /// Returns memory that is aligned to 64 bytes, with undefined content. The pool must
  /// outlive it.
  dnnl::memory make(const dnnl::memory::desc& desc, const dnnl::engine& engine);
  /// Allows later values to use this memory. Ignores memory of other owners.
  void release(const dnnl::memory& memory);

  /// Returns the size of all memory in bytes.
  int64_t bytes() const;

 private:
  struct Deleter {
    void operator()(void* data) const;
  };
  struct Block {
    std::unique_ptr<void, Deleter> data;
    size_t size = 0;
    bool is_free = false;
  };

  std::vector<Block> blocks_;
};

}  // namespace tandem
