// Arguments of `tandem bench`, `tandem eval` and `tandem predict` that are refused
// before LibTorch is loaded.

#include "app/bench_flags.h"
#include "app/eval_flags.h"
#include "tests/app/refusals.h"

namespace tandem::app::command_flags_test {

TEST(BenchFlags, RefuseInvalidValues) {
  expect_refused(
      {{{"--steps", "0"}, {"--steps", "'0'", "1 to"}},
       {{"--stepps", "1"}, {"--stepps", "'--steps'"}},
       {{"--batch-size", "0"}, {"batch_size is 0", "1 to"}}},
      &parse_bench_step);
  expect_refused(
      {{{"--backends", "shm,glo"}, {"glo", "'gloo'"}}}, &parse_bench_allreduce);
  expect_refused({{{"--optimizers", "adma"}, {"'adam'"}}}, &parse_bench_optimizer);
}

TEST(EvalFlags, RefuseInvalidValues) {
  expect_refused(
      {{{}, {"--checkpoint"}},
       {{"--checkpoint", "x", "--batch-size", "0"}, {"--batch-size", "'0'", "1 to"}}},
      &parse_eval);
  expect_refused(
      {{{"--checkpoint", "x"}, {"--out"}},
       {{"--checkpoint", "x", "--out", "y", "--split", "all"}, {"--split", "test"}}},
      &parse_predict);
}

}  // namespace tandem::app::command_flags_test
