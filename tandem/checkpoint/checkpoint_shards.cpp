#include "tandem/checkpoint/checkpoint_shards.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <random>
#include <utility>

#include "tandem/base/files.h"
#include "tandem/base/sha256.h"
#include "tandem/checkpoint/checkpoint_metadata.h"
#include "tandem/checkpoint/shard_index.h"
#include "tandem/comm/exchange.h"
#include "tandem/formats/safetensors_reader.h"

namespace tandem {

namespace {

std::string id_of(const CheckpointContent& content, const CheckpointShare& share) {
  return fmt::format("{}-{}", share.number, content.position.step);
}

SafetensorsReader open_shard(const std::string& path, const std::string& id) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    fail_on_file("read", path);
  }
  SafetensorsReader reader(std::move(file), path);
  if (checkpoint_id(reader.header().metadata) != id) {
    fail_checkpoint(path, "belongs to another save");
  }
  return reader;
}

// Names of the model's tensors and of their shards, and their bytes.
struct ModelPlaces {
  std::map<std::string, std::string> shard_of;
  uint64_t bytes = 0;

  void add(const std::string& shard, const SafetensorsReader& file) {
    for (const auto& entry : file.header().tensors) {
      shard_of[entry.name] = shard;
    }
    bytes += file.data_bytes();
  }

  ShardIndex index(const std::vector<std::string>& first) {
    ShardIndex index;
    for (const auto& name : first) {
      if (const auto place = shard_of.extract(name); !place.empty()) {
        index.emplace_back(place.key(), place.mapped());
      }
    }
    index.insert(index.end(), shard_of.begin(), shard_of.end());
    return index;
  }
};

}  // namespace

SharedDirectory find_shared_directory(
    const std::string& directory, Communicator& comm) {
  SharedDirectory found;
  const uint32_t mine = comm.rank() == 0 ? std::random_device()() / 2 : 0;
  found.number =
      static_cast<uint32_t>(reduce_count(mine, ReduceOp::max, "checkpoints", comm));
  found.path = comm.on_rank_0(
      [&] {
        prepare_checkpoints(directory);
        make_subdirectory(unfinished_path(directory, found.number));
        return std::filesystem::absolute(directory).string();
      },
      "checkpoints");
  const auto probe = unfinished_path(found.path, found.number);
  const auto rows = exchange_numbers({file_exists(probe) ? 1 : 0}, "checkpoints", comm);
  if (comm.rank() == 0) {
    remove_all(probe);
  }
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (rows[static_cast<size_t>(rank)][0] == 1) {
      found.ranks.push_back(rank);
    }
  }
  return found;
}

void write_shards(
    const std::string& directory, const CheckpointContent& content,
    const CheckpointShare& share) {
  const std::string id = id_of(content, share);
  SafetensorsFile model{content.state.model, content.description};
  SafetensorsFile training{content.state.optimizer, {}};
  mark_checkpoint_file(model.metadata, id);
  mark_checkpoint_file(training.metadata, id);
  const auto name = [&](const char* what) {
    return directory + "/" + shard_name(what, share.rank, share.size);
  };
  if (share.divides_model) {
    write_safetensors(name(kModelShard), model);
  } else if (share.rank == 0) {
    write_safetensors(directory + "/" + kModelFile, model);
  }
  if (share.has_state) {
    write_safetensors(name(kTrainingShard), training);
  }
}

void write_shard_lists(
    const std::string& directory, const CheckpointContent& content,
    const CheckpointShare& share, const std::vector<std::string>& names) {
  const std::string id = id_of(content, share);
  SafetensorsFile training{{}, metadata_of(content)};
  auto& listed = training.metadata;
  const auto list = [&](const std::string& name) {
    auto file = open_shard(directory + "/" + name, id);
    listed[name] = stored_hash(file.header().metadata, file.path());
    return file;
  };
  ModelPlaces places;
  for (int rank = 0; rank < share.size; ++rank) {
    if (share.divides_model) {
      const auto name = shard_name(kModelShard, rank, share.size);
      places.add(name, list(name));
    }
    if (share.has_state) {
      list(shard_name(kTrainingShard, rank, share.size));
    }
  }
  if (share.divides_model) {
    const auto index = shard_index_text(places.index(names), places.bytes);
    replace_file(directory + "/" + kIndexFile, index);
    listed[kIndexFile] = sha256_hex(index.data(), index.size());
  } else {
    list(kModelFile);
  }
  write_rank_files(directory, content.rank_files, listed);
  mark_checkpoint_file(listed, id);
  write_safetensors(directory + "/" + kTrainingFile, training);
}

}  // namespace tandem
