// Checkpoints that several ranks write and read together.

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/checkpoint/open_checkpoint.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/formats/tensor_list.h"
#include "tests/checkpoint/sharded_checkpoint.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::sharded_checkpoint_test {

using testing::HasSubstr;
using testing::Not;

constexpr Sharding kAll[] = {
    Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::parameters};

// Returns the bits of tensors by their names.
std::map<std::string, std::string> bits_of(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, std::string> bits;
  for (const auto& [name, tensor] : tensors) {
    bits[name] = std::string(static_cast<char*>(tensor.data_ptr()), tensor.nbytes());
  }
  return bits;
}

// Resumes a checkpoint and makes two steps. Returns the hash of the parameters.
std::string resumed(
    const std::string& path, int size, Sharding shard, bool only_rank_0 = false) {
  const auto all = on_each_rank("thread", size, [&](Communicator& comm) {
    ShardedRank rank(comm, shard, 9);
    rank.load(only_rank_0 && comm.rank() > 0 ? "nowhere" : path);
    rank.steps(2);
    return rank.sha256();
  });
  for (const auto& hash : all) {
    EXPECT_EQ(hash, all[0]);
  }
  return all[0];
}

class ShardedCheckpoints : public testing::Test {
 protected:
  std::string saved(int size, Sharding shard, int steps = 2) const {
    return saved_by(
        size, shard, scratch_ / name_of(shard) + std::to_string(size), steps);
  }

  Scratch scratch_;
};

TEST_F(ShardedCheckpoints, HaveTheBitsOfOneFile) {
  for (const int size : {3, 4}) {
    const auto one = OpenCheckpoint(saved(size, Sharding::none)).read(true);
    for (const auto shard :
         {Sharding::optimizer, Sharding::gradients, Sharding::parameters}) {
      SCOPED_TRACE(name_of(shard));
      const auto path = saved(size, shard);
      const auto files = OpenCheckpoint(path).read(true);
      EXPECT_EQ(tensor_names(files.model.tensors), tensor_names(one.model.tensors));
      EXPECT_EQ(bits_of(files.model.tensors), bits_of(one.model.tensors));
      EXPECT_EQ(bits_of(files.training.tensors), bits_of(one.training.tensors));
      EXPECT_EQ(load_model_state(path, nullptr).at("model"), "small");
      EXPECT_EQ(
          bits_of(read_model(path, CheckpointWeights::ema).tensors).at("fc1.weight"),
          bits_of(one.training.tensors).at("ema/fc1.weight"));
    }
  }
}

TEST_F(ShardedCheckpoints, HaveAFileOfEachRank) {
  EXPECT_THAT(
      list_directory(saved(3, Sharding::parameters)),
      testing::ElementsAre(
          "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
          "model-00003-of-00003.safetensors", "model.safetensors.index.json",
          "training-00001-of-00003.safetensors", "training-00002-of-00003.safetensors",
          "training-00003-of-00003.safetensors", "training.safetensors"));
  EXPECT_THAT(
      list_directory(saved(2, Sharding::gradients)),
      testing::ElementsAre(
          "model.safetensors", "training-00001-of-00002.safetensors",
          "training-00002-of-00002.safetensors", "training.safetensors"));
}

TEST_F(ShardedCheckpoints, ResumeOnAnyNumberOfRanksWithAnySharding) {
  for (const int saving : {3, 4}) {
    const auto one = saved(saving, Sharding::none);
    size_t next = 0;
    for (int size = 1; size <= 5; ++size) {
      for (const auto shard : {Sharding::optimizer, Sharding::parameters}) {
        const auto other = kAll[next++ % 4];
        SCOPED_TRACE(testing::Message() << size << name_of(shard) << name_of(other));
        const auto expected = resumed(one, size, other);
        EXPECT_EQ(resumed(saved(saving, shard), size, other), expected);
        EXPECT_EQ(resumed(saved(saving, shard), size, other, true), expected);
      }
    }
  }
}

TEST_F(ShardedCheckpoints, DivideTheBytesAmongRanks) {
  constexpr int kSize = 4;
  const auto path = saved(kSize, Sharding::parameters);
  std::vector<uint64_t> bytes;
  uint64_t whole = 0;
  for (int rank = 0; rank < kSize; ++rank) {
    for (const auto* what : {kModelShard, kTrainingShard}) {
      whole += read_file(path + "/" + shard_name(what, rank, kSize)).size();
    }
    bytes.push_back(whole);
  }
  // The buckets of the model have different sizes; the largest has 37 % of the bytes.
  EXPECT_LT(bytes[0], whole / 2);
  EXPECT_LT(whole - bytes[2], whole / 2);
}

struct Damage {
  const char* name;
  std::function<void(const std::string& path, const std::string& other)> make;
  std::string message;
};

std::string in(const std::string& path, const std::string& name) {
  return path + "/" + name;
}

const Damage kDamages[] = {
    {"a missing shard of the model",
     [](const auto& path, const auto&) {
       remove_all(in(path, "model-00002-of-00003.safetensors"));
     },
     "model-00002-of-00003.safetensors' is missing"},
    {"a missing shard of the training state",
     [](const auto& path, const auto&) {
       remove_all(in(path, "training-00003-of-00003.safetensors"));
     },
     "training-00003-of-00003.safetensors' is missing"},
    {"exchanged shards",
     [](const auto& path, const auto&) {
       const auto first = in(path, "training-00001-of-00003.safetensors");
       const auto second = in(path, "training-00002-of-00003.safetensors");
       const auto bytes = read_file(first);
       replace_file(first, read_file(second));
       replace_file(second, bytes);
     },
     "training-00001-of-00003.safetensors' belongs to another checkpoint"},
    {"a shard of another step",
     [](const auto& path, const auto& other) {
       const std::string name = "model-00003-of-00003.safetensors";
       replace_file(in(path, name), read_file(in(other, name)));
     },
     "model-00003-of-00003.safetensors' belongs to another checkpoint"},
    {"a changed index",
     [](const auto& path, const auto&) {
       const auto file = in(path, kIndexFile);
       replace_file(file, read_file(file) + " ");
     },
     "model.safetensors.index.json' is damaged or belongs to another checkpoint"},
    {"an index with another file",
     [](const auto& path, const auto&) {
       const auto file = in(path, kIndexFile);
       auto text = read_file(file);
       text.replace(text.find("model-00002"), 11, "model-00007");
       replace_file(file, text);
     },
     "model-00007-of-00003.safetensors' is missing"},
    {"a cut shard",
     [](const auto& path, const auto&) {
       const auto file = in(path, "training-00002-of-00003.safetensors");
       const auto bytes = read_file(file);
       replace_file(file, bytes.substr(0, bytes.size() - 9));
     },
     "training-00002-of-00003.safetensors' has sizes in its header"},
    {"a flipped bit",
     [](const auto& path, const auto&) {
       const auto file = in(path, "training-00003-of-00003.safetensors");
       auto bytes = read_file(file);
       bytes[bytes.size() - 3] ^= 4;
       replace_file(file, bytes);
     },
     "training-00003-of-00003.safetensors' is damaged: its contents"},
};

TEST_F(ShardedCheckpoints, ADamagedOneIsRefusedOnAllRanks) {
  for (const auto& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    const Scratch scratch;
    const auto older = saved_by(3, Sharding::parameters, scratch / "run", 1);
    const auto path = saved_by(3, Sharding::parameters, scratch / "run", 2);
    const auto weights = bits_of(read_weights(older));
    damage.make(path, older);
    const auto errors = on_each_rank("thread", 2, [&](Communicator& comm) {
      ShardedRank rank(comm, Sharding::optimizer, 9);
      const auto before = rank.replica.parameters();
      const auto error = error_of<DataError>([&] { rank.load(path); });
      TANDEM_CHECK(rank.replica.parameters().equal(before), "changed parameters");
      return error;
    });
    for (const auto& error : errors) {
      expect_parts(error, {damage.message});
      EXPECT_THAT(error, Not(HasSubstr("\n")));
    }
    expect_error<DataError>([&] { (void)read_weights(path); }, {damage.message});
    expect_error<DataError>([&] { load_model_state(path, nullptr); }, {damage.message});
    testing::internal::CaptureStderr();
    EXPECT_EQ(newest_whole_checkpoint(scratch / "run"), older);
    expect_parts(testing::internal::GetCapturedStderr(), {damage.message});
    EXPECT_EQ(bits_of(read_weights(older)), weights);
  }
}

TEST_F(ShardedCheckpoints, AreIncompleteUntilAllSharesExist) {
  const auto directory = scratch_ / "run";
  make_directories(directory);
  CheckpointContent content;
  content.state.model = {{"weight", at::zeros({3})}};
  CheckpointShare share{0, 2, true, false, 5};
  save_share(directory, content, share);
  EXPECT_EQ(newest_whole_checkpoint(directory), "");
  expect_error<DataError>(
      [&] { complete_checkpoint(directory, {}, share, {}, {}); },
      {"model-00002-of-00002.safetensors"});
  EXPECT_THAT(list_directory(directory), testing::IsEmpty());
  save_share(directory, content, share);
  ++content.position.step;
  share.rank = 1;
  save_share(directory, content, share);
  expect_error<DataError>(
      [&] { complete_checkpoint(directory, {}, share, {}, {}); },
      {"model-00002-of-00002.safetensors' belongs to another save"});
}

TEST_F(ShardedCheckpoints, TheModelAloneCanBeUsed) {
  const auto path = saved(3, Sharding::parameters);
  const auto whole = bits_of(read_weights(path));
  for (const auto& name : list_directory(path)) {
    if (is_shard_name(name, kTrainingShard) || name == kTrainingFile) {
      remove_all(path + "/" + name);
    }
  }
  EXPECT_EQ(bits_of(read_weights(path + "/" + kIndexFile)), whole);
  EXPECT_EQ(load_model_state(path + "/" + kIndexFile, nullptr).at("model"), "small");
  expect_error<DataError>(
      [&] { (void)read_weights(path); }, {"training.safetensors' is missing"});
}

// A model in several files, as Hugging Face's save_pretrained() writes it.
class ForeignShards : public testing::Test {
 protected:
  ForeignShards() {
    write("a.safetensors", {{"one", at::full({2}, 1.0)}, {"two", at::full({3}, 2.0)}});
    write("b.safetensors", {{"three", at::full({1}, 3.0)}});
    write_index("b.safetensors");
  }
  void write(const std::string& name, const std::vector<NamedTensor>& tensors) const {
    replace_file(
        scratch_ / name, unhashed_safetensors_bytes({tensors, {{"format", "pt"}}}));
  }
  void write_index(const std::string& file) const {
    replace_file(
        scratch_ / kIndexFile,
        R"({"metadata": {"total_size": 48}, "weight_map": {"three": ")" + file +
            R"(", "one": "a.safetensors", "two": "a.safetensors"}})");
  }

  Scratch scratch_;
};

TEST_F(ForeignShards, AreWeights) {
  for (const auto& path : {scratch_.path(), scratch_ / kIndexFile}) {
    const auto weights = read_weights(path);
    EXPECT_EQ(tensor_names(weights), (std::vector<std::string>{"three", "one", "two"}));
    EXPECT_EQ(weights[2].tensor.sum().item<double>(), 6);
  }
  expect_error<DataError>(
      [&] { load_model_state(scratch_.path(), nullptr); }, {"contains only weights"});
}

TEST_F(ForeignShards, ThatDoNotFitTheIndexAreErrors) {
  const auto error = [&] {
    return error_of<DataError>([&] { (void)read_weights(scratch_.path()); });
  };
  write_index("c.safetensors");
  EXPECT_THAT(error(), HasSubstr("c.safetensors' is missing"));
  write_index("../b.safetensors");
  EXPECT_THAT(error(), HasSubstr("names the file '../b.safetensors'"));
  write_index("a.safetensors");
  EXPECT_THAT(
      error(),
      HasSubstr("names the tensor 'three' in 'a.safetensors', which does not"));
  replace_file(scratch_ / kIndexFile, "{\"weight_map\": ");
  EXPECT_THAT(error(), HasSubstr("index.json' is damaged"));
  replace_file(scratch_ / kIndexFile, R"({"weight_map": {"one": 7}})");
  EXPECT_THAT(error(), HasSubstr("index.json' is damaged"));
  replace_file(scratch_ / kIndexFile, R"({"weight_map": {}})");
  EXPECT_THAT(error(), HasSubstr("names no tensor"));
}

}  // namespace tandem::sharded_checkpoint_test
