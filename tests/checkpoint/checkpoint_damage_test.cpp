// Damage of every kind: a checkpoint is loaded only if its values equal the saved
// values.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/formats/safetensors.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::checkpoint_damage_test {

using testing::HasSubstr;

const std::vector<std::string> kFiles = {
    kModelFile, kTrainingFile, "rank-0000-of-0001.safetensors"};
// Has no common factor with 8, so that a sample of bits has every place in a byte.
constexpr size_t kSample = 61;

CheckpointContent content_at(int64_t step, double value) {
  CheckpointContent content;
  content.state.model = {
      {"a.weight", at::arange(96).view({12, 8}).to(at::kFloat) * 0.37 + value},
      {"a.bias", at::full({12}, -value)}};
  content.state.optimizer = {
      {"momentum/a.weight", at::arange(96).view({12, 8}).to(at::kFloat) + value}};
  content.position = {1, step - 2, step, 64 * (step - 2)};
  content.description = {{"model", "net"}, {"mean", "0.1307"}};
  content.config = "format_version = 1\nseed = 7\n";
  return content;
}

std::vector<NamedTensor> own_at(double value) {
  return {{"own", at::arange(40).to(at::kDouble) * value}};
}

// Returns the names and bits of tensors.
std::string bits_of(const std::vector<NamedTensor>& tensors) {
  std::string bits;
  for (const auto& [name, tensor] : tensors) {
    bits += name + " ";
    bits.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  return bits;
}

std::string text_of(const Position& position) {
  return std::to_string(position.epoch) + " " + std::to_string(position.step_in_epoch) +
         " " + std::to_string(position.step) + " " +
         std::to_string(position.samples_in_epoch);
}

// Flips one bit of a file in place.
void flip(const std::string& path, size_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto at = static_cast<std::streamoff>(bit / 8);
  file.seekg(at);
  const auto byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ (1 << bit % 8)));
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

size_t header_bits(const std::string& bytes) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return 8 * (sizeof(length) + length);
}

class DamagedCheckpoint : public testing::Test {
 protected:
  std::string save(const std::string& run, int64_t step, double value) const {
    auto content = content_at(step, value);
    content.rank_files = {
        unhashed_safetensors_bytes({own_at(value), {{"strategy", "averaging"}}})};
    return save_checkpoint(scratch_ / run, content, {});
  }

  // Returns the state of a run that resumes from `path`. Throws as the run would, and
  // then has changed nothing.
  std::string resumed(const std::string& path) const {
    auto content = content_at(0, 0);
    auto own = own_at(0);
    const auto before =
        bits_of(content.state.model) + bits_of(content.state.optimizer) + bits_of(own);
    try {
      load_checkpoint(path, content, *alone_);
    } catch (const DataError&) {
      EXPECT_EQ(
          bits_of(content.state.model) + bits_of(content.state.optimizer) +
              bits_of(own),
          before);
      throw;
    }
    const bool loaded =
        load_rank_file(path, content.rank_hashes, own, "averaging", *alone_);
    return bits_of(content.state.model) + bits_of(content.state.optimizer) +
           (loaded ? bits_of(own) : "none of its own") + text_of(content.position) +
           content.config;
  }

  // Returns the weights that `tandem eval` uses.
  static std::string evaluated(const std::string& path) {
    auto content = content_at(0, 0);
    const auto description = load_model_state(path, &content.state.model);
    return bits_of(content.state.model) + description.at("model") +
           description.at("mean");
  }

  static std::string begun_with(const std::string& path) {
    return bits_of(read_weights(path));
  }

  // Returns all ways to load the checkpoint's current files.
  std::vector<std::function<std::string()>> ways() const {
    return {
        [this] { return resumed(path_); }, [this] { return evaluated(path_); },
        [this] { return begun_with(path_); },
        [this] { return begun_with(path_ + "/" + kModelFile); }};
  }

  // Expects that every way of reading `file` after `damage` fails or returns the saved
  // values.
  void expect_harmless(const std::string& file, const std::string& damage) {
    const auto all = ways();
    for (size_t i = 0; i < all.size(); ++i) {
      try {
        ASSERT_EQ(all[i](), whole_.at(i)) << file << " " << damage << ", way " << i;
      } catch (const DataError&) {
        ++refused_;
      }
    }
  }

  // Expects that --resume auto uses the previous checkpoint.
  void expect_gives_way(const std::string& damage) const {
    testing::internal::CaptureStderr();
    const auto newest = newest_whole_checkpoint(scratch_ / "run");
    testing::internal::GetCapturedStderr();
    ASSERT_EQ(newest, older_) << damage;
    std::filesystem::rename(scratch_ / "run/damaged-step-00000010", path_);
  }

  Scratch scratch_;
  std::unique_ptr<Communicator> alone_ = make_single_communicator();
  std::string older_ = save("run", 9, 0.5);
  std::string path_ = save("run", 10, 0.75);
  // Results of ways() without damage.
  std::vector<std::string> whole_ = [this] {
    std::vector<std::string> results;
    for (const auto& way : ways()) {
      results.push_back(way());
    }
    return results;
  }();
  int64_t refused_ = 0;
};

TEST_F(DamagedCheckpoint, AnyBitOfAHeader) {
  for (const auto& file : kFiles) {
    const auto path = path_ + "/" + file;
    const size_t bits = header_bits(read_file(path));
    for (size_t bit = 0; bit < bits; ++bit) {
      const std::string damage = "bit " + std::to_string(bit);
      flip(path, bit);
      expect_harmless(file, damage);
      if (bit % kSample == 0) {
        expect_gives_way(damage);
      }
      flip(path, bit);
      if (HasFatalFailure()) {
        return;
      }
    }
    EXPECT_EQ(refused_, static_cast<int64_t>(bits * ways().size()));
    refused_ = 0;
  }
  EXPECT_EQ(resumed(path_), whole_[0]);
}

TEST_F(DamagedCheckpoint, AnyBitOfTheValues) {
  std::mt19937_64 random(1);
  for (const auto& file : kFiles) {
    const auto path = path_ + "/" + file;
    const auto bytes = read_file(path);
    const size_t begin = header_bits(bytes);
    for (int i = 0; i < 1000; ++i) {
      const size_t bit = begin + random() % (8 * bytes.size() - begin);
      refused_ = 0;
      flip(path, bit);
      expect_harmless(file, "bit " + std::to_string(bit));
      ASSERT_EQ(refused_, static_cast<int64_t>(ways().size())) << file << bit;
      flip(path, bit);
    }
  }
}

TEST_F(DamagedCheckpoint, AnyOtherLength) {
  for (const auto& file : kFiles) {
    const auto path = path_ + "/" + file;
    const auto bytes = read_file(path);
    for (size_t size = 0; size < bytes.size(); ++size) {
      refused_ = 0;
      write(path, bytes.substr(0, size));
      expect_harmless(file, "cut to " + std::to_string(size));
      ASSERT_EQ(refused_, static_cast<int64_t>(ways().size())) << file << size;
      if (size % kSample == 0) {
        expect_gives_way("cut to " + std::to_string(size));
      }
    }
    refused_ = 0;
    write(path, bytes + " ");
    expect_harmless(file, "with a byte more");
    EXPECT_EQ(refused_, static_cast<int64_t>(ways().size()));
    remove_all(path);
    expect_error<DataError>([&] { resumed(path_); }, {file});
    expect_error<DataError>([&] { evaluated(path_); }, {file});
    expect_error<DataError>([&] { begun_with(path_); }, {file});
    expect_gives_way("missing");
    write(path, bytes);
  }
}

TEST_F(DamagedCheckpoint, FilesOfTwoCheckpoints) {
  // Checkpoints of another step, of another run's same step, and of equal values one
  // step later.
  const auto others = {older_, save("other", 10, 1.5), save("slow", 11, 0.75)};
  for (const auto& other : others) {
    for (const auto& file : kFiles) {
      const auto path = path_ + "/" + file;
      const auto bytes = read_file(path);
      const auto its = read_file(other + "/" + file);
      write(path, its);
      if (its == bytes) {
        EXPECT_EQ(resumed(path_), whole_[0]);
      } else {
        for (const auto& way : ways()) {
          EXPECT_THAT(
              error_of<DataError>(way),
              testing::AnyOf(
                  HasSubstr("of two checkpoints"), HasSubstr("to another checkpoint")))
              << other << file;
        }
        expect_gives_way(file + " of " + other);
      }
      write(path, bytes);
    }
  }
}

// A copy of only the model's file has no training state to compare.
TEST_F(DamagedCheckpoint, TheModelAloneCanBeUsed) {
  const auto alone = scratch_ / kModelFile;
  write(alone, read_file(path_ + "/" + kModelFile));
  EXPECT_EQ(evaluated(alone), evaluated(path_));
  EXPECT_EQ(begun_with(alone), begun_with(path_));
  expect_error<DataError>(
      [&] { evaluated(scratch_.path()); }, {"training.safetensors' is missing"});
}

// Each other mark of tandem's files is enough to detect the missing hash.
TEST_F(DamagedCheckpoint, WithoutItsHash) {
  const auto path = path_ + "/" + kModelFile;
  const auto bytes = read_file(path);
  for (const std::string other : {"checkpoint_id", "format_version"}) {
    auto changed = bytes;
    for (const auto& key : {std::string("sha256"), other}) {
      changed.replace(changed.find('"' + key + '"') + 1, 1, "_");
    }
    write(path, changed);
    for (const auto& way : ways()) {
      expect_error<DataError>(way, {"hash is missing", "--init"});
    }
  }
}

TEST_F(DamagedCheckpoint, EditedByAUserIsRejectedWithAdvice) {
  const auto file = scratch_ / "changed.safetensors";
  auto model = read_safetensors(path_ + "/" + kModelFile);
  model.tensors[1].tensor.fill_(3);
  // The bytes of Python's save_file(tensors, path).
  write(file, unhashed_safetensors_bytes({model.tensors, {}}));
  EXPECT_EQ(begun_with(file), bits_of(model.tensors));
  expect_error<DataError>([&] { evaluated(file); }, {"contains only weights"});
}

}  // namespace tandem::checkpoint_damage_test
