#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

#include "app/command_line.h"
#include "app/fetch/fetch.h"
#include "app/fetch/progress.h"
#include "app/run_command_line.h"
#include "tandem/base/error.h"
#include "tandem/base/signals.h"
#include "tandem/base/text.h"
#include "tandem/config/run_config.h"
#include "tandem/data/load_dataset.h"
#include "tandem/data/named_datasets.h"
#include "tandem/data/normalization.h"
#include "tandem/data/write_digits.h"

namespace tandem::app {

namespace {

std::string sizes_text(const Samples& samples, int64_t count) {
  std::vector<int64_t> sizes = {count};
  sizes.insert(sizes.end(), samples.shape.begin(), samples.shape.end());
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

// Prints the types and sizes of a batch's tensors (data/loader.h).
void print_batch(const Dataset& data) {
  const int64_t count = std::min(data.size, TrainingOptions().batch_size);
  fmt::print(
      "  batch: inputs {} {}, targets {} {}\n", sizes_text(data.inputs, count),
      data.has_indices() ? "int64" : "float32", sizes_text(data.targets, count),
      data.has_classes() ? "int64" : "float32");
}

std::string numbers_text(const std::vector<double>& numbers) {
  constexpr size_t kMost = 4;
  std::vector<std::string> texts;
  for (size_t i = 0; i < numbers.size() && i < kMost; ++i) {
    texts.push_back(fmt::format("{:.4f}", numbers[i]));
  }
  return join(texts, ",") + (numbers.size() > kMost ? ",..." : "");
}

void print_classes(const Dataset& data) {
  std::vector<int64_t> counts(static_cast<size_t>(data.num_classes));
  const int64_t each = data.targets.numel();
  for (int64_t i = 0; i < data.size; ++i) {
    for (int64_t at = data.place_of(i) * each; at < (data.place_of(i) + 1) * each;
         ++at) {
      const int64_t label = data.targets.integer(at);
      if (label >= 0 && label < data.num_classes) {
        ++counts[static_cast<size_t>(label)];
      }
    }
  }
  // More classes are not readable.
  constexpr size_t kMost = 100;
  for (size_t i = 0; i < counts.size() && i < kMost; ++i) {
    const std::string name =
        i < data.class_names.size() && data.class_names[i] != std::to_string(i)
            ? " " + with_escapes(data.class_names[i])
            : "";
    fmt::print("  class {}{}: {}\n", i, name, counts[i]);
  }
  if (counts.size() > kMost) {
    fmt::print(
        "  and {}\n",
        counted(
            static_cast<int64_t>(counts.size() - kMost), "more class", "more classes"));
  }
}

void describe(const char* part, const Dataset& data) {
  fmt::print(
      "{}: {} of {}, {}{}", part, counted(data.size, "sample"),
      shape_text(data.inputs.shape), name_of(data.inputs.type),
      data.has_byte_numbers() ? " numbers" : "");
  fmt::print(
      "; {}\n", data.has_classes() ? counted(data.num_classes, "class", "classes")
                                   : counted(data.num_classes, "value"));
  print_batch(data);
  if (data.has_classes() && !data.is_sequence) {
    print_classes(data);
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
  CLI::App app("Draws digits and writes them to files.", "tandem data make");
  std::string name;
  std::string out;
  int64_t train = 60'000;
  int64_t test = 10'000;
  DigitsFormat format = DigitsFormat::idx;
  app.add_option("name", name, "digits")->required();
  app.add_option("--out", out, "folder for the files")->required();
  app.add_option("--train", train, "training images")
      ->check(whole_number(1, 10'000'000));
  app.add_option("--test", test, "test images")->check(whole_number(1, 10'000'000));
  app.add_option_function<std::string>(
      "--format",
      [&format](const std::string& text) {
        format = parse_choice<DigitsFormat>("--format", text);
      },
      "format of the files: " + join(choice_names<DigitsFormat>()) + " (default: idx)");
  parse(app, arguments);
  if (name != "digits") {
    throw ConfigError(
        "[data] the data set to make is '" + name + "', expected digits; name digits");
  }
  write_digits(out, train, test, format);
  fmt::print("wrote {} + {} to {}\n", train, counted(test, "digit"), out);
  return 0;
}

DatasetSplits load_or_explain(const RunConfig& config) {
  try {
    return load_dataset(DataRequest(config));
  } catch (const std::bad_alloc&) {
    throw DataError(
        "[memory] there is not enough memory for '" + config.data.source +
        "'; free some memory, or use smaller data");
  }
}

int info(const Arguments& arguments) {
  CLI::App app(
      "Reads a data set as `tandem train --data` does, and describes it.",
      "tandem data info");
  RunConfig config;
  app.add_option("data", config.data.source, "name of a data set, or path of its files")
      ->required();
  for (const char* setting : kSampleSettings) {
    add_setting(app, config, setting);
  }
  for (const char* setting : {"test_fraction", "validation", "limit", "seed"}) {
    add_setting(app, config, setting);
  }
  parse(app, arguments);
  check_settings_of_format(config);
  const auto splits = load_or_explain(config);
  describe("train", splits.train);
  if (splits.validation.size > 0) {
    describe("validation", splits.validation);
  }
  describe("test", splits.test);
  if (!splits.train.has_indices()) {
    const Normalization measured = measure_normalization(splits.train);
    fmt::print(
        "--mean {} --std {} (measured on the training part)\n",
        numbers_text(measured.mean), numbers_text(measured.std));
  }
  return 0;
}

const std::vector<Command> kActions = {
    {"fetch", "download a data set for --data NAME", &fetch_named, "NAME"},
    {"make", "draw digits into a folder", &make, "digits --out DIR"},
    {"info", "read a data set and describe it", &info, "NAME|PATH"},
};

}  // namespace

int work_data(const Arguments& arguments) {
  return choose_action("data", kActions, arguments);
}

}  // namespace tandem::app
