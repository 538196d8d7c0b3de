#include "tandem/data/table_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/data/csv.h"
#include "tandem/data/part_files.h"
#include "tandem/data/sample_shape.h"

namespace tandem {

namespace {

constexpr const char* kTableEnding = ".csv";
// float32 represents all whole numbers below this one.
constexpr float kMostClasses = 16'777'216;

std::vector<std::string> names_of(const std::vector<CsvColumn>& columns) {
  std::vector<std::string> names;
  for (const auto& column : columns) {
    names.push_back(column.name);
  }
  return names;
}

// Returns the names of the target columns.
std::vector<std::string> target_names(
    const DataRequest& request, const std::vector<CsvColumn>& columns) {
  const auto targets = split(request.options.target, ',');
  const auto names = names_of(columns);
  constexpr size_t kMostListed = 8;
  const bool is_long = names.size() > kMostListed;
  const auto listed = std::vector<std::string>(
      names.begin(), names.begin() + std::min(names.size(), kMostListed));
  const std::string known = join(listed) + (is_long ? ", ..." : "");
  if (targets.empty()) {
    throw ConfigError(
        "[data] target is not set, expected a column of '" + request.options.source +
        "': " + known + "; add --target COLUMN");
  }
  for (const auto& target : targets) {
    if (std::find(names.begin(), names.end(), target) == names.end()) {
      throw ConfigError(
          "[data] target is '" + target + "', expected a column of '" +
          request.options.source + "': " + known + did_you_mean(target, names) +
          "; change --target");
    }
  }
  if (targets.size() == names.size()) {
    throw ConfigError(
        "[data] all columns of '" + request.options.source +
        "' are targets, expected at least one input; change --target");
  }
  return targets;
}

// Columns of a table as places in a row: inputs and targets.
struct Roles {
  std::vector<size_t> inputs;
  std::vector<size_t> targets;
};

Roles roles_of(const CsvTable& table, const std::vector<std::string>& targets) {
  Roles roles;
  for (const auto& target : targets) {
    for (size_t i = 0; i < table.columns.size(); ++i) {
      if (table.columns[i].name == target) {
        roles.targets.push_back(i);
      }
    }
  }
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const auto& found = roles.targets;
    if (std::find(found.begin(), found.end(), i) == found.end()) {
      roles.inputs.push_back(i);
    }
  }
  return roles;
}

// Returns the inputs of a sample as float32, with a number for each category.
Samples inputs_of(
    const CsvTable& table, const std::vector<size_t>& columns,
    const DataOptions& options) {
  size_t width = 0;
  for (const size_t column : columns) {
    width += std::max<size_t>(1, table.columns[column].categories.size());
  }
  const auto rows = static_cast<size_t>(table.num_rows);
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

std::vector<float> column_of(
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

void set_classes(Dataset& data, const std::vector<float>& values) {
  std::vector<int64_t> classes(values.begin(), values.end());
  data.targets = {ElementType::int64, {}, std::move(classes)};
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
    Dataset& data, const CsvTable& table, const Roles& roles,
    const DataRequest& request, std::optional<bool> classes) {
  const auto values = column_of(table, roles.targets);
  const bool is_single = roles.targets.size() == 1;
  const CsvColumn& first = table.columns[roles.targets[0]];
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
    set_classes(data, values);
    data.class_names = first.categories;
    return;
  }
  check_are_numbers(table, roles.targets, request);
  data.targets = {
      ElementType::float32, {static_cast<int64_t>(roles.targets.size())}, values};
  for (const size_t column : roles.targets) {
    data.class_names.push_back(table.columns[column].name);
  }
}

Dataset dataset_of(
    const CsvTable& table, const DataRequest& request,
    std::optional<bool> classes = {}) {
  const auto roles = roles_of(table, target_names(request, table.columns));
  Dataset data;
  data.name = request.options.source;
  data.is_loadable = true;
  data.size = table.num_rows;
  data.inputs = inputs_of(table, roles.inputs, request.options);
  set_targets(data, table, roles, request, classes);
  data.columns = to_text(table.columns);
  return data;
}

CsvTable read_training_part(const std::string& path, const DataRequest& request) {
  return request.columns.empty()
             ? read_csv(path)
             : read_csv(path, columns_from_text(request.columns, "checkpoint"));
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
    return path.empty() ? Dataset()
                        : dataset_of(
                              read_csv(path, train.columns), request,
                              splits.train.has_classes());
  };
  splits.validation = load_other(files.validation);
  splits.test = load_other(files.test);
  return splits;
}

Dataset load_table_inputs(const DataRequest& request) {
  const std::string& path = request.options.source;
  const auto columns = columns_from_text(request.columns, "checkpoint");
  const auto table = read_csv(path, columns, request.options.target);
  if (table.columns.size() == columns.size()) {
    return dataset_of(table, request);
  }
  Dataset data;
  data.name = path;
  data.size = table.num_rows;
  data.inputs = inputs_of(table, roles_of(table, {}).inputs, request.options);
  return data;
}

}  // namespace tandem
