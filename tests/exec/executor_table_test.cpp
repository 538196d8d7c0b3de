#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"
#include "tests/core/expect.h"

namespace tandem::executor_table_test {

TEST(ExecutorTable, MakesEachKind) {
  const auto model = make_model(ModelKind::net, {});
  ModelArenas arenas(model->parameters(), {});
  EXPECT_NE(make_executor(ExecutorKind::automatic, *model, arenas, {}), nullptr);
  for (const auto& entry : executor_table()) {
    if (entry.kind != ExecutorKind::cuda) {
      EXPECT_EQ(make_executor(entry.kind, *model, arenas, {})->kind(), entry.kind);
    }
  }
  EXPECT_THAT(
      error_of<ConfigError>(
          [&] { return make_executor(ExecutorKind::cuda, *model, arenas, {}); }),
      testing::HasSubstr("this one is on cpu; use --device cuda, or --executor auto"));
}

}  // namespace tandem::executor_table_test
