#include "tandem/data/table_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/data/csv.h"
#include "tandem/data/data_memory.h"
#include "tandem/data/part_files.h"
#include "tandem/data/sample_shape.h"

namespace tandem {

namespace {

constexpr const char* kTableEnding = ".csv";
// float32 represents all whole numbers below this one.
constexpr float kMostClasses = 16'777'216;

// Returns the columns that contain targets.
std::vector<size_t> target_columns(
    const DataRequest& request, const std::vector<CsvColumn>& columns) {
  constexpr size_t kMostListed = 8;
  const std::string& path = request.options.source;
  const auto names = names_of(columns);
  auto listed = names;
  if (listed.size() > kMostListed) {
    listed.resize(kMostListed);
    listed.emplace_back("...");
  }
  const auto targets = split(request.options.target, ',');
  if (targets.empty()) {
    throw ConfigError(fmt::format(
        "[data] target is not set, expected a column of '{}': {}; add --target COLUMN",
        path, join(listed)));
  }
  std::vector<size_t> places;
  for (const auto& target : targets) {
    const auto found = std::find(names.begin(), names.end(), target);
    if (found == names.end()) {
      throw ConfigError(fmt::format(
          "[data] target is '{}', expected a column of '{}': {}{}; change --target",
          target, path, join(listed), did_you_mean(target, names)));
    }
    places.push_back(static_cast<size_t>(found - names.begin()));
  }
  if (targets.size() == names.size()) {
    throw ConfigError(fmt::format(
        "[data] all columns of '{}' are targets, expected at least one input; change "
        "--target",
        path));
  }
  return places;
}

void check_table_memory(size_t rows, size_t width, const DataOptions& options) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(rows * sizeof(float), width, &bytes)) {
    bytes = std::numeric_limits<size_t>::max();
  }
  check_data_memory(
      fmt::format(
          "'{}' with {} inputs per sample, one for each category,", options.source,
          width),
      bytes, "select columns with fewer categories with --columns");
}

// Returns the inputs of a sample as float32, with a number for each category. They are
// all columns except `targets`.
Samples inputs_of(
    const CsvTable& table, const std::vector<size_t>& targets,
    const DataOptions& options) {
  std::vector<size_t> columns;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (std::find(targets.begin(), targets.end(), i) == targets.end()) {
      columns.push_back(i);
    }
  }
  size_t width = 0;
  for (const size_t column : columns) {
    width += std::max<size_t>(1, table.columns[column].categories.size());
  }
  const auto rows = static_cast<size_t>(table.num_rows);
  check_table_memory(rows, width, options);
  std::vector<float> values(rows * width);
  float* to = values.data();
  for (size_t row = 0; row < rows; ++row) {
    const float* from = table.values.data() + row * table.columns.size();
    for (const size_t column : columns) {
      const size_t categories = table.columns[column].categories.size();
      if (categories == 0) {
        *to++ = from[column];
      } else {
        to[static_cast<size_t>(from[column])] = 1;
        to += categories;
      }
    }
  }
  const auto numel = static_cast<int64_t>(width);
  Samples inputs{ElementType::float32, {numel}, std::move(values)};
  if (!options.shape.empty()) {
    inputs.shape = parse_shape(options, numel);
  }
  return inputs;
}

// Returns the values of some columns, row by row.
std::vector<float> values_of(
    const CsvTable& table, const std::vector<size_t>& columns) {
  std::vector<float> values;
  for (int64_t row = 0; row < table.num_rows; ++row) {
    for (const size_t column : columns) {
      values.push_back(
          table.values[static_cast<size_t>(row) * table.columns.size() + column]);
    }
  }
  return values;
}

bool are_whole(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](const float value) {
    return value >= 0 && value < kMostClasses && value == std::floor(value);
  });
}

// Returns whether whole numbers from 0 on are classes, not values. If there are many
// numbers with large gaps between them, most classes would have no samples. Logs the
// choice if there are many numbers.
bool look_like_classes(
    const std::vector<float>& values, const std::string& column,
    const DataRequest& request) {
  constexpr size_t kMany = 20;
  const std::set<float> numbers(values.begin(), values.end());
  const auto largest = static_cast<size_t>(*numbers.rbegin());
  const bool are_many = numbers.size() > kMany;
  const bool has_gaps = 2 * numbers.size() <= largest;
  if (are_many && request.logs_parts) {
    log_info(fmt::format(
        "[data] the target column '{}' of '{}' has {} different whole numbers up to "
        "{}, which are {}",
        column, request.options.source, numbers.size(), largest,
        has_gaps ? "values of a regression; for classes, set --loss cross_entropy"
                 : "classes; for a regression, set --loss mse"));
  }
  return !are_many || !has_gaps;
}

bool has_classes(
    const CsvColumn& column, const std::vector<float>& values,
    const DataRequest& request) {
  if (request.whole_targets == WholeTargets::values) {
    return false;
  }
  return !column.categories.empty() ||
         (are_whole(values) && (request.whole_targets == WholeTargets::classes ||
                                look_like_classes(values, column.name, request)));
}

void check_are_numbers(
    const CsvTable& table, const std::vector<size_t>& columns,
    const DataRequest& request) {
  for (const size_t column : columns) {
    const auto& categories = table.columns[column].categories;
    if (!categories.empty()) {
      throw ConfigError(fmt::format(
          "[data] the target column '{}' of '{}' has texts such as '{}', expected "
          "numbers for {}; change --target, or --loss to cross_entropy",
          table.columns[column].name, request.options.source, categories[0],
          request.whole_targets == WholeTargets::values ? "this loss"
                                                        : "several target columns"));
    }
  }
}

// Sets the targets. `classes`: whether they are classes, as in the training part; it is
// decided here if it has no value.
void set_targets(
    Dataset& data, const CsvTable& table, const std::vector<size_t>& targets,
    const DataRequest& request, std::optional<bool> classes) {
  const auto values = values_of(table, targets);
  const bool is_single = targets.size() == 1;
  const CsvColumn& first = table.columns[targets[0]];
  if (!classes) {
    classes = is_single && has_classes(first, values, request);
  }
  if (*classes && is_single) {
    if (!are_whole(values)) {
      throw DataError(fmt::format(
          "[data] the target column '{}' of '{}' has other numbers than the classes of "
          "the training part, expected whole numbers from 0 on; change the targets, or "
          "--loss to mse",
          first.name, request.options.source));
    }
    data.targets = {
        ElementType::int64, {}, std::vector<int64_t>(values.begin(), values.end())};
    data.class_names = first.categories;
    return;
  }
  check_are_numbers(table, targets, request);
  data.targets = {ElementType::float32, {static_cast<int64_t>(targets.size())}, values};
  for (const size_t column : targets) {
    data.class_names.push_back(table.columns[column].name);
  }
}

Dataset dataset_of(
    const CsvTable& table, const DataRequest& request,
    std::optional<bool> classes = {}) {
  const auto targets = target_columns(request, table.columns);
  Dataset data;
  data.name = request.options.source;
  data.is_loadable = true;
  data.size = table.num_rows;
  data.inputs = inputs_of(table, targets, request.options);
  set_targets(data, table, targets, request, classes);
  data.columns = to_text(table.columns);
  return data;
}

// Returns whether other files may have columns that the run does not use.
bool ignores_others(const DataRequest& request) {
  return !request.options.columns.empty();
}

CsvTable read_training_part(const std::string& path, const DataRequest& request) {
  const DataOptions& options = request.options;
  return request.columns.empty()
             ? read_csv(
                   path,
                   CsvChoice{
                       split(options.columns, ','), split(options.target, ','),
                       split(options.categories, ',')})
             : read_csv(
                   path, columns_from_text(request.columns, "checkpoint"), "",
                   ignores_others(request));
}

}  // namespace

bool has_table(const std::string& path) {
  return has_part_files(path, kTableEnding);
}

DatasetSplits load_table(const DataRequest& request, const Deadline&) {
  const PartFiles files = part_files(request.options.source, kTableEnding);
  DatasetSplits splits;
  const CsvTable train = read_training_part(files.train, request);
  splits.train = dataset_of(train, request);
  const auto load_other = [&](const std::string& path) {
    return path.empty()
               ? Dataset()
               : dataset_of(
                     read_csv(path, train.columns, "", ignores_others(request)),
                     request, splits.train.has_classes());
  };
  splits.validation = load_other(files.validation);
  splits.test = load_other(files.test);
  return splits;
}

Dataset load_table_inputs(const DataRequest& request) {
  const std::string& path = request.options.source;
  const auto columns = columns_from_text(request.columns, "checkpoint");
  const auto table =
      read_csv(path, columns, request.options.target, ignores_others(request));
  if (table.columns.size() == columns.size()) {
    return dataset_of(table, request);
  }
  Dataset data;
  data.name = path;
  data.size = table.num_rows;
  data.inputs = inputs_of(table, {}, request.options);
  return data;
}

}  // namespace tandem
