#include "tandem/data/load_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/config/fields.h"
#include "tandem/data/array_dataset.h"
#include "tandem/data/classes.h"
#include "tandem/data/idx.h"
#include "tandem/data/image_dataset.h"
#include "tandem/data/images/image_listing.h"
#include "tandem/data/named_datasets.h"
#include "tandem/data/normalization.h"
#include "tandem/data/sources.h"
#include "tandem/data/subset.h"
#include "tandem/data/table_dataset.h"
#include "tandem/data/text_dataset.h"

namespace tandem {

namespace {

constexpr const char* kCustom = "custom:";
// Seed that selects the test part of data without a test part. It is a constant, so
// that all runs have the same test part.
constexpr uint64_t kTestSeed = 0x7e57;

void check_is_not_custom(const std::string& source) {
  if (source.rfind(kCustom, 0) == 0) {
    throw ConfigError(
        "[data] data is the custom data set '" +
        source.substr(std::string(kCustom).size()) +
        "' of another program, expected a name or a path; resume or evaluate the run "
        "in that program (evaluate_checkpoint()), or change --data");
  }
}

void check_exists(const std::string& source) {
  if (file_exists(source)) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& set : named_datasets()) {
    names.emplace_back(set.name);
  }
  throw ConfigError(
      "[data] data is '" + source + "', expected the path of files or one of " +
      join(names) + did_you_mean(source, names) + "; change --data");
}

void hold_out_test(DatasetSplits& splits, const DataRequest& request) {
  Dataset& train = splits.train;
  const int64_t all = train.size;
  const double fraction = request.options.test_fraction;
  splits.test = hold_out(train, fraction, kTestSeed, "test_fraction");
  if (request.logs_parts) {
    log_info(fmt::format(
        "'{}' has no test part, so the test part gets {} of its {} samples "
        "(--test-fraction {})",
        train.name, splits.test.size, all, fraction));
  }
}

// Warns if there is only one class, or if less than half of the classes occur. Such
// labels are valid, but a file is probably wrong.
void warn_of_classes(const Dataset& train) {
  if (!train.has_classes() || !train.targets.shape.empty() || thread_rank() != 0) {
    return;
  }
  if (train.num_classes == 1) {
    log_warning(fmt::format(
        "[data] a training on '{}' learns nothing, because all samples have the class "
        "'{}', expected two or more classes; change --data or add samples",
        train.name, train.class_names.empty() ? "0" : train.class_names.front()));
    return;
  }
  std::set<int64_t> found;
  for (int64_t i = 0; i < train.size; ++i) {
    found.insert(train.targets.integer(train.place_of(i)));
  }
  const auto num_found = static_cast<int64_t>(found.size());
  if (2 * num_found < train.num_classes) {
    log_warning(fmt::format(
        "[data] training labels of '{}' go up to {}, but only {} of them occur; check "
        "the labels, or set --loss mse if they are values",
        train.name, train.num_classes - 1, num_found));
  }
}

bool is_measured(const ChannelValues& mean, const ChannelValues& std, bool by_default) {
  using Kind = ChannelValues::Kind;
  const auto needs = [&](const ChannelValues& values) {
    return values.kind() == Kind::measured ||
           (values.kind() == Kind::standard && by_default);
  };
  return needs(mean) || needs(std);
}

using Numbers = std::vector<double> Dataset::*;

// Stores a normalization of the training part in all parts.
void store(
    const Normalization& found, Numbers mean, Numbers std, DatasetSplits& splits) {
  for (const auto part : kDatasetParts) {
    (splits.*part).*mean = found.mean;
    (splits.*part).*std = found.std;
  }
}

WholeTargets meaning_for(LossKind loss) {
  return loss == LossKind::automatic ? WholeTargets::automatic
         : row_of(loss).of_numbers   ? WholeTargets::values
                                     : WholeTargets::classes;
}

void hold_out_validation(DatasetSplits& splits, const DataRequest& request) {
  const double fraction = request.options.validation;
  if (splits.validation.size > 0) {
    throw ConfigError(fmt::format(
        "[data] validation is {}, but '{}' has a validation part of {}; leave out "
        "--validation",
        fraction, splits.train.name, counted(splits.validation.size, "sample")));
  }
  splits.validation = hold_out(splits.train, fraction, request.seed, "validation");
}

bool has_only_images(const std::string& path) {
  const DataSource* source = match_source(path);
  return has_loose_images(path) ||
         (source != nullptr && source->load == &load_image_folders);
}

// A kind of files whose samples fit only data sets of this kind.
struct FileKind {
  const char* verb_and_name;
  bool (*matches)(const std::string& path);
  bool (*fits)(const Dataset& trained);
};

constexpr FileKind kFileKinds[] = {
    {"is a table", &has_table,
     [](const Dataset& trained) { return !trained.columns.empty(); }},
    {"is a text", &has_text, [](const Dataset& trained) { return trained.tokens; }},
    {"contains images", &has_only_images,
     [](const Dataset& trained) { return trained.has_images(); }}};

std::string kind_text(const Dataset& data) {
  const std::string shape = shape_text(data.inputs.shape);
  return !data.columns.empty() ? "a table"
         : data.tokens         ? "a text"
         : data.has_images()   ? "images of " + shape
                               : name_of(data.inputs.type) + (" samples of " + shape);
}

}  // namespace

DataRequest::DataRequest(const std::string& source, int64_t limit) {
  options.source = source;
  options.limit = limit;
}

DataRequest::DataRequest(const RunConfig& config)
    : options(config.data),
      seed(static_cast<uint64_t>(config.training.seed)),
      whole_targets(meaning_for(config.model.loss)),
      ignore_index(config.model.ignore_index) {}

void check_settings_of_format(const RunConfig& config) {
  const std::string& path = config.data.source;
  const bool is_named = find_named(path) != nullptr;
  const DataSource* own = is_named ? nullptr : match_source(path);
  if (!is_named && own == nullptr) {
    return;
  }
  const std::vector<std::string> used =
      is_named ? std::vector<std::string>() : own->settings;
  for (const auto& source : data_sources()) {
    for (const auto& name : source.settings) {
      const Field& field = find_field(name, name);
      if (field.text(config) != field.text(RunConfig()) &&
          std::find(used.begin(), used.end(), name) == used.end()) {
        throw ConfigError(fmt::format(
            "[data] {} is '{}', but data is {}, which has no such setting; leave out "
            "{}",
            name, field.text(config),
            is_named ? path : fmt::format("'{}': {}", path, own->files), field.flag()));
      }
    }
  }
}

DatasetSplits load_dataset(const DataRequest& request, const Deadline& deadline) {
  const DataOptions& options = request.options;
  check_is_not_custom(options.source);
  const NamedDataset* named = find_named(options.source);
  const DataSource* source = nullptr;
  if (named == nullptr) {
    check_exists(options.source);
    source = &find_source(options.source);
  }
  DatasetSplits splits =
      named != nullptr ? load_named(*named, deadline) : source->load(request, deadline);
  if (request.whole_targets == WholeTargets::values) {
    for (const auto part : kDatasetParts) {
      convert_to_values(splits.*part);
    }
  }
  // Counts classes before samples are held out. Otherwise, the test part could get the
  // only sample of the largest class.
  count_classes(splits, request.ignore_index);
  if (splits.test.size == 0 && request.for_training) {
    hold_out_test(splits, request);
  }
  if (source != nullptr && request.for_training && request.logs_parts) {
    warn_of_classes(splits.train);
  }
  for (const auto part : kDatasetParts) {
    splits.*part =
        limit_samples(std::move(splits.*part), options.source, options.limit);
  }
  if (options.validation > 0) {
    hold_out_validation(splits, request);
  }
  const bool by_default = source != nullptr && source->is_measured;
  if (is_measured(options.mean, options.std, by_default)) {
    store(measure_normalization(splits.train), &Dataset::mean, &Dataset::std, splits);
  }
  if (is_measured(options.target_mean, options.target_std, false)) {
    store(
        measure_targets(splits.train), &Dataset::target_mean, &Dataset::target_std,
        splits);
  }
  return splits;
}

DatasetSplits load_dataset(
    const std::string& source, int64_t limit, const Deadline& deadline) {
  return load_dataset(DataRequest(source, limit), deadline);
}

Dataset limit_samples(Dataset part, const std::string& source, int64_t limit) {
  const bool takes_first =
      find_named(source) != nullptr || find_source(source).takes_first;
  return takes_first ? first_samples(std::move(part), limit)
                     : evenly_spaced_samples(std::move(part), limit);
}

void check_kind_of_files(const std::string& path, const Dataset& trained) {
  for (const auto& kind : kFileKinds) {
    if (find_named(path) == nullptr && kind.matches(path) && !kind.fits(trained)) {
      throw ConfigError(fmt::format(
          "[data] '{}' {}, but the checkpoint was trained on {}, expected data of the "
          "same kind; change --data",
          path, kind.verb_and_name, kind_text(trained)));
    }
  }
}

bool has_inputs(const std::string& path) {
  std::error_code ignored;
  return has_loose_images(path) ||
         (std::filesystem::is_regular_file(path, ignored) && !ends_with(path, ".npz") &&
          !ends_with(path, ".txt"));
}

Dataset load_inputs(const DataRequest& request, const Deadline& deadline) {
  const std::string& path = request.options.source;
  if (has_loose_images(path)) {
    return load_image_inputs(request, deadline);
  }
  return ends_with(path, ".npy")   ? load_array_inputs(request)
         : ends_with(path, ".csv") ? load_table_inputs(request)
                                   : load_images(path);
}

std::string recorded_name(const Dataset& data) {
  if (!data.is_loadable) {
    return kCustom + data.name;
  }
  if (find_named(data.name) != nullptr) {
    return data.name;
  }
  auto path = std::filesystem::absolute(data.name);
  // After a link, ".." is not the folder before the link.
  if (data.name.find("..") == std::string::npos) {
    path = path.lexically_normal();
  }
  // Checkpoints can contain only UTF-8.
  return find_invalid_utf8(path.string()) ? data.name : path.string();
}

}  // namespace tandem
