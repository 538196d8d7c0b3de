#include "tandem/config/line_format.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::line_format_test {

// Each value is a different number.
LineValues some_values() {
  LineValues values;
  values.rank = 1;
  values.epoch = 3;
  values.epoch_index = 2;
  values.epochs = 4;
  values.step = 30;
  values.steps = 60;
  values.batch_index = 29;
  values.batch_loss = 0.25;
  values.own_samples = 320;
  values.samples = 640;
  values.total = 60'000;
  values.share = 15'000;
  values.loss = 0.123456789;
  values.metric = 0.125;
  values.accuracy = 97.5;
  values.correct = 9'750;
  values.count = 10'000;
  values.lr = 0.05;
  values.samples_per_second = 2'048;
  values.seconds = 90;
  values.program_seconds = 120;
  values.master_addr = "10.0.0.1";
  values.master_port = 29'500;
  values.num_gpus = 2;
  return values;
}

std::string line(const std::string& pattern) {
  return format_line("log_line", pattern, some_values());
}

TEST(LineFormat, HasEveryValue) {
  EXPECT_EQ(line("{rank} {share} {total}"), "1 15000 60000");
  EXPECT_EQ(line("{samples} {percent:.4f}%"), "640 1.0667%");
  EXPECT_EQ(line("{epoch} {epoch_index} {epochs}"), "3 2 4");
  EXPECT_EQ(line("{step} {steps} {step_percent:.0f}%"), "30 60 50%");
  EXPECT_EQ(line("{batch_index} {batch_percent:.1f}%"), "29 48.3%");
  EXPECT_EQ(line("{batch_loss} of {own_samples}"), "0.25 of 320");
  EXPECT_EQ(line("{correct}/{count} {accuracy:.1f}%"), "9750/10000 97.5%");
  EXPECT_EQ(line("{metric} {metric:.1f}"), "0.125 0.1");
  EXPECT_EQ(line("{lr} {samples_per_second:.0f}"), "0.05 2048");
  EXPECT_EQ(line("{seconds:.0f} s = {minutes:.1f} min"), "90 s = 1.5 min");
  EXPECT_EQ(line("{program_seconds} s = {program_minutes} min"), "120.0 s = 2.0 min");
  EXPECT_EQ(line("{master_addr}:{master_port}"), "10.0.0.1:29500");
  EXPECT_EQ(line("{device}, {num_gpus} GPUs"), "cpu, 2 GPUs");
}

// str(datetime.timedelta(seconds=...)).
TEST(LineFormat, WritesDurationsAsPythonDoes) {
  const auto written = [](double seconds) {
    LineValues values;
    values.seconds = seconds;
    return format_line("end_line", "{duration}", values);
  };
  EXPECT_EQ(written(8.912345), "0:00:08.912345");
  EXPECT_EQ(written(90), "0:01:30");
  EXPECT_EQ(written(3'600.5), "1:00:00.500000");
  EXPECT_EQ(written(86'400 + 7'261), "1 day, 2:01:01");
  EXPECT_EQ(written(2 * 86'400), "2 days, 0:00:00");
  EXPECT_EQ(written(59.9999999), "0:01:00");
}

TEST(LineFormat, WritesTheTutorialsLines) {
  EXPECT_EQ(
      line("epoch: {epoch_index} [{batch_index}/{steps} ({batch_percent:.0f}%)]\t "
           "training loss: {batch_loss:.6f}"),
      "epoch: 2 [29/60 (48%)]\t training loss: 0.250000");
  EXPECT_EQ(
      line("Epoch [{epoch}/{epochs}], Step [{step}/{steps}], Loss: {batch_loss:.4f}"),
      "Epoch [3/4], Step [30/60], Loss: 0.2500");
  EXPECT_EQ(
      line("Train Epoch: {epoch} [{own_samples}/{total} ({batch_percent:.0f}%)]\tLoss: "
           "{batch_loss:.6f}"),
      "Train Epoch: 3 [320/60000 (48%)]\tLoss: 0.250000");
}

// As Python's print() writes them: repr(float).
TEST(LineFormat, WritesNumbersWithoutASpecificationAsPythonDoes) {
  const auto written = [](double loss) {
    LineValues values;
    values.batch_loss = loss;
    return format_line("log_line", "{batch_loss}", values);
  };
  EXPECT_EQ(written(2), "2.0");
  EXPECT_EQ(written(0), "0.0");
  EXPECT_EQ(written(static_cast<double>(2.4779260F)), "2.477926015853882");
  EXPECT_EQ(written(static_cast<double>(0.1F)), "0.10000000149011612");
  EXPECT_EQ(written(0.0001), "0.0001");
  EXPECT_EQ(written(0.00001), "1e-05");
  EXPECT_EQ(written(1e15), "1000000000000000.0");
  EXPECT_EQ(written(1e16), "1e+16");
}

TEST(LineFormat, PrintsDoubledBracesOnce) {
  EXPECT_EQ(line("{{{rank}}}"), "{1}");
  EXPECT_EQ(line(""), "");
}

TEST(LineFormat, NamesTheSettingOfAnInvalidTemplate) {
  for (const char* pattern :
       {"{los}", "{loss", "loss}", "{loss:d}", "{epoch:.2f}", "{loss:", "{0}", "{}"}) {
    expect_error<ConfigError>(
        [&] { line(pattern); }, {std::string("log_line is '") + pattern + "'",
                                 "expected in braces: rank, epoch"});
  }
}

}  // namespace tandem::line_format_test
