#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {
namespace {

using testing::HasSubstr;

TEST(ExecutorTable, MakesEachKind) {
  const auto model = make_model(ModelKind::net, {});
  ModelArenas arenas(model->parameters(), {});
  EXPECT_NE(make_executor(ExecutorKind::automatic, *model, arenas, {}), nullptr);
  for (const auto& entry : executor_table()) {
    try {
      EXPECT_EQ(make_executor(entry.kind, *model, arenas, {})->kind(), entry.kind);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("not in this build"));
    }
  }
}

}  // namespace
}  // namespace tandem
