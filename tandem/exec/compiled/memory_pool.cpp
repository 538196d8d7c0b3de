#include "tandem/exec/compiled/memory_pool.h"

#include <cstdlib>
#include <new>

namespace tandem {

void MemoryPool::Deleter::operator()(void* data) const {
  std::free(data);
}

dnnl::memory MemoryPool::make(
    const dnnl::memory::desc& desc, const dnnl::engine& engine) {
  constexpr size_t kAlignment = 64;
  const size_t size =
      (desc.get_size() + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  Block* best = nullptr;
  for (auto& block : blocks_) {
    // A small value in a large block would make the next large value allocate more.
    if (block.is_free && block.size >= size && block.size <= 2 * size &&
        (best == nullptr || block.size < best->size)) {
      best = &block;
    }
  }
  if (best == nullptr) {
    void* const data = std::aligned_alloc(kAlignment, size);
    if (data == nullptr) {
      throw std::bad_alloc();
    }
    blocks_.push_back({std::unique_ptr<void, Deleter>(data), size, false});
    best = &blocks_.back();
  }
  best->is_free = false;
  return {desc, engine, best->data.get()};
}

void MemoryPool::release(const dnnl::memory& memory) {
  for (auto& block : blocks_) {
    if (block.data.get() == memory.get_data_handle()) {
      block.is_free = true;
    }
  }
}

int64_t MemoryPool::bytes() const {
  size_t bytes = 0;
  for (const auto& block : blocks_) {
    bytes += block.size;
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace tandem
