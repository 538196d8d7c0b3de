#include "tandem/train/weights.h"

#include <algorithm>
#include <fstream>

#include "tandem/base/error.h"
#include "tandem/train/checkpoint.h"
#include "tandem/train/safetensors.h"
#include "tandem/train/tensor_list.h"
#include "tandem/train/torch_file.h"

namespace tandem {

namespace {

constexpr const char* kReplicaPrefix = "module.";

// A safetensors file starts with 8 bytes of length, then JSON.
constexpr size_t kStart = 9;

std::string start_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(kStart, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) {
    throw DataError(
        "[weights] cannot read '" + path +
        "'; name a checkpoint, a safetensors file or one of torch.save");
  }
  return start;
}

std::vector<NamedTensor> read_any(const std::string& path) {
  if (const auto inside = model_file(path); inside != path) {
    return read_safetensors(inside).tensors;
  }
  const std::string start = start_of(path);
  if (start.compare(0, 2, "PK") == 0) {
    return read_torch_file(path);
  }
  if (start[0] == '\x80') {
    throw DataError(
        "[weights] '" + path +
        "' is of torch.save's format before PyTorch 1.6; load it in Python and save "
        "it again");
  }
  if (start.back() != '{') {
    throw DataError(
        "[weights] '" + path +
        "' is neither a checkpoint, a safetensors file nor one of torch.save; name "
        "another file");
  }
  return read_safetensors(path).tensors;
}

bool is_of_replica(const NamedTensor& entry) {
  return entry.name.rfind(kReplicaPrefix, 0) == 0;
}

}  // namespace

std::vector<NamedTensor> read_weights(const std::string& path) {
  auto tensors = read_any(path);
  if (std::all_of(tensors.begin(), tensors.end(), is_of_replica)) {
    for (auto& entry : tensors) {
      entry.name.erase(0, std::string(kReplicaPrefix).size());
    }
  }
  return tensors;
}

void load_weights(const std::string& path, const std::vector<NamedTensor>& targets) {
  const auto tensors = read_weights(path);
  check_fits("weights", path, tensors, targets, Fit::exact);
  copy_values(tensors, targets);
}

}  // namespace tandem
