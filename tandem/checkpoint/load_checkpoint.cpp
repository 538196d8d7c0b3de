#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/checkpoint/checkpoint_metadata.h"
#include "tandem/checkpoint/open_checkpoint.h"
#include "tandem/checkpoint/state_parts.h"
#include "tandem/comm/exchange.h"
#include "tandem/formats/tensor_list.h"

namespace tandem {

namespace {

constexpr const char* kLoading = "checkpoint";

// A file of a checkpoint, whose header all ranks know.
struct SharedFile {
  bool of_model = false;
  std::string path;
  SafetensorsHeader header;
};

std::string path_in(const std::string& directory) {
  const std::string index = directory + "/" + kIndexFile;
  return file_exists(index) ? index : directory + "/" + kModelFile;
}

// Files of a checkpoint that several ranks read together. Ranks that cannot open the
// files of rank 0 get the tensors from other ranks.
class JointReader {
 public:
  JointReader(const std::string& path, Communicator& comm) : comm_(comm) {
    const std::string layout = comm.on_rank_0(
        [&] {
          opened_.emplace(path_in(path));
          opened_->require_training();
          opened_->check_together();
          return layout_of(*opened_);
        },
        kLoading);
    for (const auto& file : nlohmann::json::parse(layout)) {
      files_.push_back(
          {file.at("of_model"), file.at("path"),
           parse_safetensors_header(
               file.at("header").get_ref<const std::string&>(), file.at("bytes"),
               file.at("path"))});
    }
    find_readers(path, layout);
  }

  const std::vector<SharedFile>& files() const {
    return files_;
  }

  // Checks the hashes of all files. Each rank reads its share of the files.
  void verify() {
    const auto check = [&] {
      for (size_t i = 0; i < files_.size(); ++i) {
        if (is_mine(i)) {
          stored_hash(reader(i).read_all(false).metadata, files_[i].path);
        }
      }
      const bool reads_rank_files = comm_.rank() == 0;
      for (const auto& file : reads_rank_files ? opened_->rank_files() : kNoFiles) {
        file.read_all(false);
      }
    };
    on_all_ranks(check, kLoading, comm_);
  }

  // Passes each tensor to `use` on all ranks. Each rank has at most the tensor of
  // another rank and its own next one in memory.
  void read(const std::function<void(const SharedFile&, const NamedTensor&)>& use) {
    const size_t step = readers_.size();
    for (size_t first = 0; first < files_.size(); first += step) {
      read_group(first, std::min(first + step, files_.size()), use);
    }
  }

 private:
  inline static const std::vector<SafetensorsReader> kNoFiles;

  static std::string layout_of(const OpenCheckpoint& opened) {
    auto layout = nlohmann::json::array();
    for (const auto* files : {&opened.model(), &opened.training()}) {
      for (const auto& file : *files) {
        layout.push_back(
            {{"of_model", files == &opened.model()},
             {"path", file.path()},
             {"header", file.json()},
             {"bytes", file.data_bytes()}});
      }
    }
    return layout.dump();
  }

  // Finds the ranks that can open the files of rank 0.
  void find_readers(const std::string& path, const std::string& layout) {
    if (comm_.rank() != 0) {
      try {
        opened_.emplace(path_in(path));
        opened_->require_training();
      } catch (const Error&) {
        opened_.reset();
      }
      if (opened_ && layout_of(*opened_) != layout) {
        opened_.reset();
      }
    }
    const auto rows = exchange_numbers({opened_ ? 1 : 0}, kLoading, comm_);
    for (int rank = 0; rank < comm_.size(); ++rank) {
      if (rows[static_cast<size_t>(rank)][0] != 0) {
        readers_.push_back(rank);
      }
    }
  }

  int owner(size_t file) const {
    return readers_[file % readers_.size()];
  }
  bool is_mine(size_t file) const {
    return owner(file) == comm_.rank();
  }
  const SafetensorsReader& reader(size_t file) const {
    const auto& model = opened_->model();
    return file < model.size() ? model[file] : opened_->training()[file - model.size()];
  }

  // Reads files of different ranks. All ranks read a tensor before the first is sent,
  // so they read in parallel.
  void read_group(
      size_t first, size_t last,
      const std::function<void(const SharedFile&, const NamedTensor&)>& use) {
    size_t most = 0;
    for (size_t file = first; file < last; ++file) {
      most = std::max(most, files_[file].header.tensors.size());
    }
    for (size_t i = 0; i < most; ++i) {
      at::Tensor mine;
      for (size_t file = first; file < last; ++file) {
        if (is_mine(file) && i < files_[file].header.tensors.size()) {
          mine = reader(file).read(files_[file].header.tensors[i]);
        }
      }
      for (size_t file = first; file < last; ++file) {
        if (i < files_[file].header.tensors.size()) {
          const auto& entry = files_[file].header.tensors[i];
          const auto tensor =
              is_mine(file) ? mine : at::empty(entry.shape, entry.dtype);
          if (tensor.numel() > 0) {
            comm_.broadcast(tensor, owner(file), kLoading)->wait();
          }
          use(files_[file], {entry.name, tensor});
        }
      }
    }
  }

  Communicator& comm_;
  // Not set on a rank that cannot open the files.
  std::optional<OpenCheckpoint> opened_;
  // Files of the model, then of the training state.
  std::vector<SharedFile> files_;
  std::vector<int> readers_;
};

// Returns tensors with the names and shapes of a file, but without memory.
std::vector<NamedTensor> shapes_in(
    const std::vector<SharedFile>& files, bool of_model) {
  std::vector<NamedTensor> shapes;
  for (const auto& file : files) {
    for (const auto& entry : file.header.tensors) {
      if (file.of_model == of_model) {
        shapes.push_back({entry.name, at::zeros({}).expand(entry.shape)});
      }
    }
  }
  return shapes;
}

void copy_part(const at::Tensor& value, const at::Tensor& target, StatePart part) {
  if (part.begin == 0 && part.end == target.numel()) {
    target.detach().copy_(value);
  } else {
    part_of(target.detach(), part).copy_(part_of(laid_out_as(target, value), part));
  }
}

struct Target {
  at::Tensor tensor;
  StatePart part;
};
using Targets = std::map<std::string, Target>;

Targets targets_of(
    const std::vector<NamedTensor>& tensors, const std::vector<StatePart>& parts) {
  Targets targets;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    targets[name] = {tensor, parts.empty() ? StatePart{0, tensor.numel()} : parts[i]};
  }
  return targets;
}

}  // namespace

CheckpointContent visit_checkpoint(
    const std::string& path, Communicator& comm, const AcceptCheckpoint& accept,
    const std::function<void(bool of_model, const NamedTensor& tensor)>& use) {
  JointReader reader(path, comm.host_group());
  reader.verify();
  const auto& files = reader.files();
  const auto training = std::find_if(
      files.begin(), files.end(), [](const auto& f) { return !f.of_model; });
  auto read = content_of(files[0].header.metadata, training->header.metadata, path);
  read.state = {shapes_in(files, true), shapes_in(files, false)};
  accept(read);
  reader.read([&](const SharedFile& file, const NamedTensor& tensor) {
    use(file.of_model, tensor);
  });
  read.state = {};
  return read;
}

CheckpointContent read_checkpoint(const std::string& path, Communicator& comm) {
  TrainingState state;
  auto content = visit_checkpoint(
      path, comm, [](const CheckpointContent&) {},
      [&](bool of_model, const NamedTensor& tensor) {
        (of_model ? state.model : state.optimizer).push_back(tensor);
      });
  content.state = std::move(state);
  return content;
}

void load_checkpoint(
    const std::string& path, CheckpointContent& content, Communicator& comm,
    const AcceptCheckpoint& accept) {
  auto& state = content.state;
  const auto model = targets_of(state.model, state.model_parts);
  const auto optimizer = targets_of(state.optimizer, state.optimizer_parts);
  auto read = visit_checkpoint(
      path, comm,
      [&](const CheckpointContent& found) {
        accept(found);
        check_fits("checkpoint", path, found.state.model, state.model, Fit::complete);
        check_fits(
            "checkpoint", path, found.state.optimizer, state.optimizer, Fit::complete);
      },
      [&](bool of_model, const NamedTensor& entry) {
        const auto& targets = of_model ? model : optimizer;
        if (const auto target = targets.find(entry.name); target != targets.end()) {
          copy_part(entry.tensor, target->second.tensor, target->second.part);
        }
      });
  read.state = std::move(state);
  content = std::move(read);
}

}  // namespace tandem
