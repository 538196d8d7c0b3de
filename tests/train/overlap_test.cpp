// Overlap of communication and backward: nearly all gradient bytes are sent before the
// backward of the first convolution starts.

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/data/load_dataset.h"
#include "tandem/train/assembly.h"

namespace tandem::overlap_test {

DatasetSplits small_digits() {
  return load_dataset("digits", 64);
}

// Returns the spans of rank 0 in one step of `net` on two ranks, in the order of their
// start.
std::vector<Trace::Span> trace_step(SyncMode sync) {
  RunConfig config;
  config.strategy.sync = sync;
  const auto data = small_digits();
  Trace trace;
  run_ranks(2, [&](Communicator& comm) {
    Assembly parts = assemble(config, data.train, comm);
    parts.strategy->start();
    SamplerOptions shard;
    shard.num_shards = comm.size();
    shard.shard = comm.rank();
    LoaderOptions options;
    options.batch_size = 8;
    Loader loader(data.train, shard, options);
    loader.seek(0);
    Batch batch;
    TANDEM_CHECK(loader.next(batch), "the loader has no batch");
    StepContext context;
    context.lr = 1;
    context.trace = comm.rank() == 0 ? &trace : nullptr;
    parts.strategy->train_step({batch}, context);
  });
  return trace.compute_spans();
}

// Returns the bytes of buckets sent before the first convolution's backward, and of
// all.
std::pair<int64_t, int64_t> early_and_all_bytes(const std::vector<Trace::Span>& spans) {
  int64_t early = 0;
  int64_t all = 0;
  bool convolution_started = false;
  for (const auto& span : spans) {
    convolution_started =
        convolution_started || span.name.rfind("backward conv", 0) == 0;
    all += span.bytes;
    early += convolution_started ? 0 : span.bytes;
  }
  EXPECT_TRUE(convolution_started);
  return {early, all};
}

TEST(Overlap, SendsNearlyAllBytesBeforeTheFirstConvolutionsBackward) {
  const auto [early, all] = early_and_all_bytes(trace_step(SyncMode::overlap));
  EXPECT_GE(all, 1'199'882 * 4);
  EXPECT_GE(static_cast<double>(early), 0.95 * static_cast<double>(all));
}

TEST(Overlap, FlatSendsNothingBeforeBackwardEnds) {
  const auto [early, all] = early_and_all_bytes(trace_step(SyncMode::flat));
  EXPECT_GE(all, 1'199'882 * 4);
  EXPECT_EQ(early, 0);
}

TEST(Overlap, SpansComeInTheOrderOfBackward) {
  const std::vector<std::string> wanted = {"backward loss",  "backward fc2",
                                           "backward fc1",   "backward conv2",
                                           "backward conv1", "update"};
  std::vector<std::string> found;
  for (const auto& span : trace_step(SyncMode::overlap)) {
    if (std::find(wanted.begin(), wanted.end(), span.name) != wanted.end()) {
      found.push_back(span.name);
    }
  }
  EXPECT_EQ(found, wanted);
}

}  // namespace tandem::overlap_test
