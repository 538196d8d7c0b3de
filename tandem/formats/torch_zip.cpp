#include "tandem/formats/torch_zip.h"

#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <exception>

#include "tandem/base/files.h"

namespace tandem {

void write_torch_zip(const std::string& path, const std::vector<ZipRecord>& records) {
  replace_file(path, [&](int fd) {
    // LibTorch's writer contains C code, through which an exception cannot pass.
    std::exception_ptr error;
    caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, size_t size) {
      try {
        if (!error) {
          write_all(fd, data, size, path);
        }
      } catch (...) {
        error = std::current_exception();
      }
      return size;
    });
    for (const auto& record : records) {
      archive.writeRecord(record.name, record.data, record.size);
    }
    archive.writeEndOfFile();
    if (error) {
      std::rethrow_exception(error);
    }
  });
}

bool is_inside(
    int64_t storage_numel, int64_t offset, const std::vector<int64_t>& sizes,
    const std::vector<int64_t>& strides) {
  if (sizes.size() != strides.size() || sizes.size() > kMostDims || offset < 0 ||
      offset > storage_numel) {
    return false;
  }
  bool empty = false;
  int64_t last = offset;
  int64_t numel = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t steps = 0;
    if (sizes[i] < 0 || strides[i] < 0 ||
        __builtin_mul_overflow(numel, std::max<int64_t>(sizes[i], 1), &numel)) {
      return false;
    }
    empty = empty || sizes[i] == 0;
    if (sizes[i] > 0 && (__builtin_mul_overflow(sizes[i] - 1, strides[i], &steps) ||
                         __builtin_add_overflow(last, steps, &last))) {
      return false;
    }
  }
  return empty || last < storage_numel;
}

}  // namespace tandem
