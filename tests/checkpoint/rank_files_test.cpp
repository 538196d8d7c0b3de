#include "tandem/checkpoint/checkpoint_files.h"

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
#include "tandem/checkpoint/checkpoint.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::rank_files_test {

using testing::Each;
using testing::ElementsAre;

class RankFiles : public testing::Test {
 protected:
  // Saves a checkpoint of ranks whose tensor contains 10 * rank + 1, plus `more`.
  std::string save(
      int size, const std::string& backend = "thread", int64_t step = 7,
      double more = 0) {
    std::string path;
    on_each_rank(backend, size, [&](Communicator& comm) {
      const double value = 10.0 * comm.rank() + 1 + more;
      const auto files = gather_rank_files(
          {{"own", at::full({2, 3}, value, at::kDouble)}}, "averaging", comm);
      if (comm.rank() == 0) {
        path = save_with(files, step);
      }
      return files.size();
    });
    return path;
  }

  std::string save_with(const std::vector<std::string>& files, int64_t step = 7) const {
    CheckpointContent content;
    content.state.model = {{"weight", at::zeros({3})}};
    content.position.step = step;
    content.rank_files = files;
    return save_checkpoint(scratch_ / "checkpoints", content, {});
  }

  static std::map<std::string, std::string> hashes_of(const std::string& path) {
    CheckpointContent content;
    load_checkpoint(path, content, *make_single_communicator());
    return content.rank_hashes;
  }

  // Returns the content of each rank's tensor after loading, -1 if nothing was loaded.
  // Only rank 0 has the files.
  static std::vector<double> load(
      const std::string& path, int size, const std::string& strategy = "averaging",
      const std::string& backend = "thread") {
    const auto hashes = hashes_of(path);
    return on_each_rank(backend, size, [&](Communicator& comm) {
      const auto own = at::full({2, 3}, -1.0, at::kDouble);
      const bool loaded = load_rank_file(
          comm.rank() == 0 ? path : "nowhere", hashes, {{"own", own}}, strategy, comm);
      TANDEM_CHECK(loaded == (own[1][2].item<double>() != -1), "says something else");
      return own[1][2].item<double>();
    });
  }

  Scratch scratch_;
};

TEST_F(RankFiles, RestoreTheStateOfEachRank) {
  for (const std::string backend : {"thread", "shm", "gloo"}) {
    const auto path = save(3, backend);
    EXPECT_THAT(
        list_directory(path),
        ElementsAre(
            "model.safetensors", "rank-0000-of-0003.safetensors",
            "rank-0001-of-0003.safetensors", "rank-0002-of-0003.safetensors",
            "training.safetensors"));
    EXPECT_THAT(load(path, 3, "averaging", backend), ElementsAre(1, 11, 21));
  }
}

TEST_F(RankFiles, NeedTheSameStrategyAndNumberOfRanks) {
  const auto path = save(3);
  EXPECT_THAT(load(path, 2), Each(-1));
  EXPECT_THAT(load(path, 4), Each(-1));
  EXPECT_THAT(load(path, 3, "hogwild"), Each(-1));
}

// Damage to the file of rank 1 of 3. Each checkpoint has another step, because an equal
// warning is printed only once.
TEST_F(RankFiles, AMissingDamagedOrForeignFileDamagesTheCheckpoint) {
  const auto older = save(3);
  const auto file_of = [](const std::string& path, int rank) {
    return path + "/" + rank_file_name(rank, 3);
  };
  struct Case {
    std::function<void(const std::string& path)> damage;
    std::string what;
  };
  const std::vector<Case> cases = {
      {[&](const auto& path) { remove_all(file_of(path, 1)); }, "rank-0001"},
      {[&](const auto& path) {
         auto bytes = read_file(file_of(path, 1));
         bytes[bytes.size() - 3] ^= 1;
         replace_file(file_of(path, 1), bytes);
       },
       "rank-0001"},
      {[&](const auto& path) {
         replace_file(file_of(path, 1), read_file(file_of(path, 0)));
       },
       "to another checkpoint"},
      {[&](const auto& path) {
         replace_file(file_of(path, 1), read_file(file_of(older, 1)));
       },
       "to another checkpoint"}};
  int64_t step = 7;
  for (const auto& [damage, what] : cases) {
    const auto newer = save(3, "thread", ++step, 0.5);
    damage(newer);
    expect_error<DataError>([&] { load(newer, 3); }, {what});
    testing::internal::CaptureStderr();
    EXPECT_EQ(newest_whole_checkpoint(scratch_ / "checkpoints"), older);
    expect_parts(testing::internal::GetCapturedStderr(), {what, newer});
  }
}

TEST_F(RankFiles, AnUnlistedFileIsNotLoaded) {
  const auto listed = save(3);
  const auto bare = save_with({}, 8);
  const auto name = rank_file_name(1, 3);
  replace_file(bare + "/" + name, read_file(listed + "/" + name));
  EXPECT_THAT(load(bare, 3), Each(-1));
  EXPECT_EQ(newest_whole_checkpoint(scratch_ / "checkpoints"), bare);
}

TEST_F(RankFiles, AreNotWrittenWithoutState) {
  const auto counts = on_each_rank("thread", 2, [&](Communicator& comm) {
    TANDEM_CHECK(load_rank_file("nowhere", {}, {}, "data_parallel", comm), "misses it");
    return gather_rank_files({}, "data_parallel", comm).size();
  });
  EXPECT_THAT(counts, Each(0u));
}

TEST_F(RankFiles, MayBelongToSomeRanksOnly) {
  on_each_rank("thread", 3, [&](Communicator& comm) {
    std::vector<NamedTensor> own;
    if (comm.rank() == 1) {
      own.push_back({"own", at::full({1}, 5.0)});
    }
    const auto files = gather_rank_files(own, "s", comm);
    std::string path;
    if (comm.rank() == 0) {
      TANDEM_CHECK(files.size() == 3 && files[0].empty() && files[2].empty(), "files");
      path = save_with(files);
    }
    path = comm.broadcast_text(path, 0, "path");
    if (comm.rank() == 1) {
      own[0].tensor.zero_();
    }
    TANDEM_CHECK(load_rank_file(path, hashes_of(path), own, "s", comm), "not loaded");
    TANDEM_CHECK(own.empty() || own[0].tensor.item<double>() == 5, "value");
    return 0;
  });
}

}  // namespace tandem::rank_files_test
