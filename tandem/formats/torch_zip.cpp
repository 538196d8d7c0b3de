#include "tandem/formats/torch_zip.h"

#include <caffe2/serialize/inline_container.h>

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

}  // namespace tandem
