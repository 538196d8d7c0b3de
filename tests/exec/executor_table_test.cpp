#include <gtest/gtest.h>

#include "tandem/exec/stage_executor.h"

namespace tandem::executor_table_test {

TEST(ExecutorTable, MakesEachKind) {
  const auto model = make_model(ModelKind::net, {});
  ModelArenas arenas(model->parameters(), {});
  EXPECT_NE(make_executor(ExecutorKind::automatic, *model, arenas, {}), nullptr);
  for (const auto& entry : executor_table()) {
    EXPECT_EQ(make_executor(entry.kind, *model, arenas, {})->kind(), entry.kind);
  }
}

}  // namespace tandem::executor_table_test
