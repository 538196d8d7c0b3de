#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/deadline.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Meaning of targets that are whole numbers in the files.
enum class WholeTargets {
  // Values in a table if they do not look like classes (table_dataset.h), otherwise
  // classes.
  automatic,
  classes,
  // Values (float32).
  values,
};

/// Data that load_dataset() reads.
struct DataRequest {
  DataOptions options;
  // Seed of the run, which selects the samples of the validation part.
  uint64_t seed = 0;
  WholeTargets whole_targets = WholeTargets::automatic;
  // Class that is valid even if it is not less than the number of classes
  // (Loss::ignore_index).
  int64_t ignore_index = kNoIgnoredClass;
  // True: if the files have no test part, some samples are held out as the test part.
  // Also reports data that are useless for training, such as images of a single class.
  // False: if the files have no test part, the training part has all samples.
  bool for_training = true;
  // False: another process has already logged the parts, the meaning of the targets,
  // and warnings about both.
  bool logs_parts = true;
  // False: another process of this host has just checked the pixels in the cache of
  // decoded images.
  bool checks_cache = true;
  // Columns of the training part of a CSV table (Dataset::columns); "": the file is the
  // training part.
  std::string columns;
  // Number of channels of images in a folder: 1 for gray, 3 for RGB; 0: gray if all
  // images are gray.
  int64_t channels = 0;
  // True: sets Dataset::files.
  bool keeps_files = false;

  DataRequest() = default;
  /// Requests the data set `--data SOURCE --limit LIMIT`.
  DataRequest(  // NOLINT(google-explicit-constructor)
      const std::string& source, int64_t limit = 0);
  /// Requests the data set of a run.
  explicit DataRequest(const RunConfig& config);
};

/// Throws ConfigError if a setting differs from its default, but the format of the data
/// set does not use it, such as `target` for images. Reads only the names of files, not
/// their content. Does nothing if the files are missing on this host, or have no known
/// format.
void check_settings_of_format(const RunConfig& config);

/// Loads a named data set (named_datasets.h), or the files at a path (sources.h).
///
/// If the files have no test part, and the data are for a training
/// (DataRequest::for_training), holds out DataOptions::test_fraction of the samples.
/// These are the same samples in every run, or the end of a text. With
/// DataOptions::validation, holds out a part of the training samples, which depends on
/// the seed. If DataOptions::limit is greater than 0, keeps only the samples of each
/// part that limit_samples() returns. Measures the normalization if the options require
/// it.
///
/// Throws ConfigError for an unknown name, for options that do not fit the data, and if
/// DataOptions::validation is set but the files have a validation part.
/// Throws DataError if files are missing or damaged, or if another process still locks
/// them at `deadline`.
[[nodiscard]] DatasetSplits load_dataset(
    const DataRequest& request,
    const Deadline& deadline = Deadline(std::chrono::minutes(5)));

/// Loads the data set `--data SOURCE --limit LIMIT` with default options.
[[nodiscard]] DatasetSplits load_dataset(
    const std::string& source, int64_t limit = 0,
    const Deadline& deadline = Deadline(std::chrono::minutes(5)));

/// Returns `limit` samples of a part of the data set `source`; all samples if limit is
/// 0. Files of most formats can be in order of their classes, so the samples are at
/// equal distances. From named data sets, IDX and CIFAR-10 files, whose samples are
/// shuffled, and from texts, returns the first samples.
[[nodiscard]] Dataset limit_samples(
    Dataset part, const std::string& source, int64_t limit);

/// Throws ConfigError if the files at a path have another kind of samples than the data
/// set `trained`, such as a table instead of images. Looks only at names of files. Does
/// nothing for other paths.
void check_kind_of_files(const std::string& path, const Dataset& trained);

/// Returns whether a path has inputs that load_inputs() reads, and not a data set with
/// parts. Reads only names, not the content of files.
[[nodiscard]] bool has_inputs(const std::string& path);

/// Loads inputs for predictions: an image (PNG or JPEG) or a folder of images, an IDX
/// file of images, a .npy file, or a CSV table. The table may lack the target column of
/// the training part. If the file has no targets, Dataset::targets has no bytes. Throws
/// the errors of load_dataset().
[[nodiscard]] Dataset load_inputs(
    const DataRequest& request,
    const Deadline& deadline = Deadline(std::chrono::minutes(5)));

/// Returns the value of `data` in a run's config.toml: the name of a data set, the
/// absolute path of files (the given path if the absolute path is not UTF-8), or
/// "custom:NAME" for other data, which load_dataset() rejects.
[[nodiscard]] std::string recorded_name(const Dataset& data);

}  // namespace tandem
