#include "tandem/train/rank_files.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/train/checkpoint.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/data/scratch.h"

namespace tandem {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RankFiles : public testing::Test {
 protected:
  // A checkpoint of ranks whose tensor holds 10 * rank + 1.
  std::string save(int size, const std::string& backend = "thread") {
    std::string path;
    on_each_rank(backend, size, [&](Communicator& comm) {
      CheckpointContent content;
      content.state.model = {{"weight", at::zeros({3})}};
      content.position.step = 7;
      content.rank_files = gather_rank_files(
          {{"own", at::full({2, 3}, 10.0 * comm.rank() + 1, at::kDouble)}}, "averaging",
          comm);
      if (comm.rank() == 0) {
        path = save_checkpoint(scratch_ / "checkpoints", content, 0);
      }
      return content.rank_files.size();
    });
    return path;
  }

  // What each rank's tensor holds then, -1: nothing was loaded.
  static std::vector<double> load(
      const std::string& path, int size, const std::string& strategy = "averaging") {
    return on_each_rank("thread", size, [&](Communicator& comm) {
      const auto own = at::full({2, 3}, -1.0, at::kDouble);
      const bool loaded = load_rank_file(path, {{"own", own}}, strategy, comm);
      TANDEM_CHECK(loaded == (own[1][2].item<double>() != -1), "says something else");
      return own[1][2].item<double>();
    });
  }

  Scratch scratch_;
};

TEST_F(RankFiles, GiveEachRankItsOwn) {
  for (const std::string backend : {"thread", "shm", "gloo"}) {
    const auto path = save(3, backend);
    EXPECT_THAT(
        list_directory(path),
        ElementsAre(
            "model.safetensors", "rank-0000-of-0003.safetensors",
            "rank-0001-of-0003.safetensors", "rank-0002-of-0003.safetensors",
            "training.safetensors"));
    EXPECT_THAT(load(path, 3), ElementsAre(1, 11, 21));
  }
}

TEST_F(RankFiles, AreForAsManyRanksOfTheSameStrategy) {
  const auto path = save(3);
  EXPECT_THAT(load(path, 2), Each(-1));
  EXPECT_THAT(load(path, 4), Each(-1));
  EXPECT_THAT(load(path, 3, "hogwild"), Each(-1));
}

TEST_F(RankFiles, OneThatIsMissingIsMissedByAll) {
  const auto path = save(3);
  remove_all(path + "/" + rank_file_name(1, 3));
  EXPECT_THAT(load(path, 3), Each(-1));
}

TEST_F(RankFiles, OneThatIsDamagedMakesTheCheckpointDamaged) {
  save(2);
  const auto newer = scratch_ / "checkpoints/step-00000008";
  ASSERT_EQ(
      std::rename((scratch_ / "checkpoints/step-00000007").c_str(), newer.c_str()), 0);
  save(2);
  const auto file = newer + "/" + rank_file_name(1, 2);
  auto bytes = read_file(file);
  bytes[bytes.size() - 3] ^= 1;
  replace_file(file, bytes);
  EXPECT_THAT(error_of<DataError>([&] { load(newer, 2); }), HasSubstr("rank-0001"));
  EXPECT_THAT(
      newest_whole_checkpoint(scratch_ / "checkpoints"), HasSubstr("step-00000007"));
}

TEST_F(RankFiles, AreNoneWhereNoRankHasAnything) {
  const auto counts = on_each_rank("thread", 2, [&](Communicator& comm) {
    TANDEM_CHECK(load_rank_file("nowhere", {}, "data_parallel", comm), "misses it");
    return gather_rank_files({}, "data_parallel", comm).size();
  });
  EXPECT_THAT(counts, Each(0u));
}

TEST_F(RankFiles, MayBeOfSomeRanksOnly) {
  const auto path = scratch_ / "here";
  make_directories(path);
  on_each_rank("thread", 3, [&](Communicator& comm) {
    std::vector<NamedTensor> own;
    if (comm.rank() == 1) {
      own.push_back({"own", at::full({1}, 5.0)});
    }
    const auto files = gather_rank_files(own, "s", comm);
    if (comm.rank() == 0) {
      TANDEM_CHECK(files.size() == 3 && files[0].empty() && files[2].empty(), "files");
      replace_file(path + "/" + rank_file_name(1, 3), files[1]);
    }
    comm.barrier();
    if (comm.rank() == 1) {
      own[0].tensor.zero_();
    }
    TANDEM_CHECK(load_rank_file(path, own, "s", comm), "not loaded");
    TANDEM_CHECK(own.empty() || own[0].tensor.item<double>() == 5, "value");
    return 0;
  });
}

}  // namespace
}  // namespace tandem
