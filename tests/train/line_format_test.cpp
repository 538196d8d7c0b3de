#include "tandem/train/line_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Every value another number.
LineValues some_values() {
  LineValues values;
  values.rank = 1;
  values.epoch = 3;
  values.epoch_index = 2;
  values.epochs = 4;
  values.step = 30;
  values.step_index = 29;
  values.steps = 60;
  values.step_percent = 50;
  values.samples = 640;
  values.total = 60'000;
  values.percent = 1.0667;
  values.share = 15'000;
  values.loss = 0.123456789;
  values.accuracy = 97.5;
  values.correct = 9'750;
  values.count = 10'000;
  values.lr = 0.05;
  values.samples_per_second = 2'048;
  values.seconds = 90;
  values.minutes = 1.5;
  return values;
}

std::string line(const std::string& pattern) {
  return format_line("log_line", pattern, some_values());
}

TEST(LineFormat, KnowsEveryValueByItsName) {
  EXPECT_EQ(line("{rank} {share} {total}"), "1 15000 60000");
  EXPECT_EQ(line("{epoch} {epoch_index} {epochs}"), "3 2 4");
  EXPECT_EQ(line("{step} {step_index} {steps} {step_percent:.0f}%"), "30 29 60 50%");
  EXPECT_EQ(line("{correct}/{count} {accuracy:.1f}%"), "9750/10000 97.5%");
  EXPECT_EQ(line("{lr} {samples_per_second:.0f}"), "0.05 2048");
  EXPECT_EQ(line("{seconds:.0f} s = {minutes:.1f} min"), "90 s = 1.5 min");
}

TEST(LineFormat, WritesTheDocumentsLines) {
  EXPECT_EQ(
      line("epoch: {epoch_index} [{step}/{steps} ({step_percent:.0f}%)]\t "
           "training loss: {loss:.6f}"),
      "epoch: 2 [30/60 (50%)]\t training loss: 0.123457");
  EXPECT_EQ(
      line("Epoch [{epoch}/{epochs}], Step [{step}/{steps}], Loss: {loss:.4f}"),
      "Epoch [3/4], Step [30/60], Loss: 0.1235");
  EXPECT_EQ(
      line("Train Epoch: {epoch} [{samples}/{total} ({percent:.0f}%)]\tLoss: "
           "{loss:.6f}"),
      "Train Epoch: 3 [640/60000 (1%)]\tLoss: 0.123457");
}

TEST(LineFormat, TakesBracesAsThemselvesWhenDoubled) {
  EXPECT_EQ(line("{{{rank}}}"), "{1}");
  EXPECT_EQ(line(""), "");
}

TEST(LineFormat, NamesTheSettingAndTheTemplateThatIsNone) {
  for (const char* pattern :
       {"{los}", "{loss", "loss}", "{loss:d}", "{epoch:.2f}", "{loss:", "{0}", "{}"}) {
    EXPECT_THAT(
        error_of<ConfigError>([&] { line(pattern); }),
        AllOf(
            HasSubstr(std::string("log_line is '") + pattern + "'"),
            HasSubstr("it takes rank, epoch")));
  }
}

}  // namespace
}  // namespace tandem
