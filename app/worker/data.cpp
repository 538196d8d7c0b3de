#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "app/actions.h"
#include "app/command_line.h"
#include "app/fetch/fetch.h"
#include "app/fetch/progress.h"
#include "tandem/base/signals.h"
#include "tandem/config/options/training_options.h"
#include "tandem/data/dataset.h"
#include "tandem/data/named_datasets.h"

namespace tandem::app {

namespace {

// Mean and standard deviation of pixels in 0 to 1.
void print_pixels(const Dataset& data) {
  double sum = 0;
  double squares = 0;
  const auto bytes = static_cast<size_t>(data.inputs.bytes_of(data.size));
  for (size_t i = 0; i < bytes; ++i) {
    const double value = data.inputs.bytes[i] / 255.0;
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(bytes);
  const double std = std::sqrt(squares / static_cast<double>(bytes) - mean * mean);
  fmt::print(", mean {:.4f}, std {:.4f}", mean, std);
}

void describe(const char* part, const Dataset& data) {
  std::vector<int64_t> counts(static_cast<size_t>(data.num_classes));
  for (int64_t i = 0; i < data.size; ++i) {
    ++counts[static_cast<size_t>(data.targets.integer(i))];
  }
  const std::string sample = fmt::format("{}", fmt::join(data.inputs.shape, ", "));
  fmt::print(
      "{}: {} samples of [{}], uint8; {} classes", part, data.size, sample,
      data.num_classes);
  print_pixels(data);
  fmt::print("\n");
  if (data.size > 0) {
    const int64_t batch = std::min(data.size, TrainingOptions().batch_size);
    fmt::print("  sample 0: [{}], label {}\n", sample, data.targets.integer(0));
    fmt::print("  batch: [{}, {}], labels [{}]\n", batch, sample, batch);
  }
  for (int64_t label = 0; label < data.num_classes; ++label) {
    fmt::print("  class {}: {}\n", label, counts[static_cast<size_t>(label)]);
  }
}

int fetch_named(const Arguments& arguments) {
  CLI::App app(
      "Downloads a data set into the folder that --data NAME uses: $TANDEM_DATA/NAME "
      "or the cache. Correct files are kept, and interrupted downloads continue. "
      "$TANDEM_MIRRORS names a file with your own mirrors.",
      "tandem data fetch");
  std::string name;
  FetchOptions options;
  app.add_option(
         "name", name,
         "mnist, fashion-mnist, kmnist, cifar-10, or a name from your own mirrors")
      ->required();
  app.add_option("--to", options.to, "another folder for the files");
  app.add_option("--stall-seconds", options.stall_seconds)
      ->check(whole_number(1, 3600))
      ->group("");
  parse(app, arguments);
  catch_signals();
  const std::string folder = fetch(find_set(read_mirrors(), name), options);
  // For a data set of custom mirrors, prints the folder, because --data does not accept
  // its name.
  say("to use it: --data " + (find_dataset(name) == folder ? name : folder));
  return 0;
}

int make(const Arguments& arguments) {
  CLI::App app("Draws digits and writes them as IDX files.", "tandem data make");
  std::string name;
  std::string out;
  int64_t train = 60'000;
  int64_t test = 10'000;
  app.add_option("name", name, "digits")->required();
  app.add_option("--out", out, "folder for the four files")->required();
  app.add_option("--train", train, "training images")
      ->check(whole_number(1, 10'000'000));
  app.add_option("--test", test, "test images")->check(whole_number(1, 10'000'000));
  parse(app, arguments);
  if (name != "digits") {
    throw ConfigError(
        "[data] the data set to make is '" + name + "', expected digits; name digits");
  }
  write_digits(out, train, test);
  fmt::print("wrote {} + {} digits to {}\n", train, test, out);
  return 0;
}

int check(const Arguments& arguments) {
  CLI::App app("Reads a whole data set and describes it.", "tandem data check");
  std::string name;
  app.add_option("name", name, "name or folder of a data set")->required();
  parse(app, arguments);
  const auto splits = load_dataset(name);
  describe("train", splits.train);
  describe("test", splits.test);
  return 0;
}

const std::vector<Action> kActions = {
    {"fetch", "NAME", "download a data set for --data NAME", &fetch_named},
    {"make", "digits --out DIR", "draw digits into a folder", &make},
    {"check", "NAME|DIR", "read a data set and describe it", &check},
};

}  // namespace

int work_data(const Arguments& arguments) {
  return choose_action("data", kActions, arguments);
}

}  // namespace tandem::app
