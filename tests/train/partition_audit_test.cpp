#include "tandem/train/report/partition_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/data/loader.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::partition_audit_test {

using testing::HasSubstr;

SamplerOptions shard_of(const Communicator& comm, int64_t size, Tail tail) {
  SamplerOptions sampler;
  sampler.size = size;
  sampler.num_shards = comm.size();
  sampler.shard = comm.rank();
  sampler.seed = 3;
  sampler.tail = tail;
  return sampler;
}

// Reads an epoch as the trainer does.
void read_epoch(
    PartitionAudit& audit, const Dataset& data, const SamplerOptions& sampler,
    int64_t epoch, int64_t first_position) {
  LoaderOptions options;
  options.batch_size = 4;
  options.micro_batches = 2;
  Loader loader(data, sampler, options);
  loader.seek(epoch, first_position);
  audit.begin(epoch, epoch, first_position);
  Batch batch;
  while (loader.next(batch)) {
    audit.add(batch.samples);
  }
  audit.finish();
}

TEST(PartitionAudit, AcceptsThePlanOfTheSampler) {
  for (const int64_t size : {1, 30, 61}) {
    const auto data = noise_images(size);
    for (const int ranks : {1, 2, 3, 4}) {
      for (const auto tail : {Tail::pad, Tail::drop, Tail::keep}) {
        run_ranks(ranks, [&](Communicator& comm) {
          const auto sampler = shard_of(comm, size, tail);
          PartitionAudit audit(comm, sampler);
          for (int64_t epoch = 0; epoch < 3; ++epoch) {
            read_epoch(audit, data, sampler, epoch, 0);
          }
        });
      }
    }
  }
}

TEST(PartitionAudit, AcceptsTheRestOfAnEpochOfAnotherNumberOfRanks) {
  const auto data = noise_images(61);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t position : {16, 48, 60, 61, 64}) {
      run_ranks(ranks, [&](Communicator& comm) {
        const auto sampler = shard_of(comm, 61, Tail::pad);
        PartitionAudit audit(comm, sampler);
        read_epoch(audit, data, sampler, 2, position);
      });
    }
  }
}

std::string failure(
    const std::function<void(SamplerOptions&, Communicator&)>& break_rank) {
  const auto data = noise_images(60);
  return error_of<Error>([&] {
    run_ranks(3, [&](Communicator& comm) {
      auto sampler = shard_of(comm, 60, Tail::pad);
      PartitionAudit audit(comm, sampler);
      break_rank(sampler, comm);
      read_epoch(audit, data, sampler, 4, 0);
    });
  });
}

TEST(PartitionAudit, NamesTheRanksThatReadTheSameShard) {
  const auto message = failure([](SamplerOptions& sampler, Communicator& comm) {
    sampler.shard = comm.rank() == 2 ? 0 : comm.rank();
  });
  EXPECT_THAT(message, HasSubstr("epoch 5: 40 of 60 samples"));
  EXPECT_THAT(
      message,
      testing::AnyOf(HasSubstr("(by rank 0, 2)"), HasSubstr("(by rank none)")));
}

TEST(PartitionAudit, FindsARankWithAnotherSeed) {
  EXPECT_THAT(
      failure([](SamplerOptions& sampler, Communicator& comm) {
        sampler.seed += comm.rank() == 1 ? 1 : 0;
      }),
      HasSubstr("--seed"));
}

TEST(PartitionAudit, FindsARankThatSkipsItsLastSample) {
  expect_error<Error>(
      [&] {
        run_ranks(2, [&](Communicator& comm) {
          const auto sampler = shard_of(comm, 10, Tail::pad);
          PartitionAudit audit(comm, sampler);
          audit.begin(0, 0, 0);
          const auto indices = shard_indices(sampler, 0);
          const auto read = static_cast<int64_t>(indices.size()) - comm.rank();
          audit.add(at::tensor(indices).narrow(0, 0, read));
          audit.finish();
        });
      },
      {"1 of 10 samples", "read 0 times (by rank none), planned 1"});
}

}  // namespace tandem::partition_audit_test
