#include "tandem/checkpoint/checkpoint.h"

#include <ATen/Dispatch.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/checkpoint/open_checkpoint.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/optim/ema.h"

namespace tandem {

namespace {

constexpr const char* kTemporary = "tmp-";
constexpr const char* kDamaged = "damaged-";
constexpr const char* kLeft = "left-";
constexpr const char* kReplaced = "replaced-";

std::string text(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  return found == file.metadata.end() ? "" : found->second;
}

int64_t number(
    const SafetensorsFile& file, const std::string& key, const std::string& path) {
  const auto value = parse_number<int64_t>(text(file, key));
  if (!value || *value < 0) {
    fail_checkpoint(path, "has no " + key);
  }
  return *value;
}

[[noreturn]] void cannot_rename(const std::string& from, const std::string& to) {
  throw DataError(
      "[checkpoint] cannot rename '" + from + "' to '" + to +
      "': " + std::strerror(errno) + "; choose another --out");
}

void rename_to(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    cannot_rename(from, to);
  }
}

std::string with_prefix(const std::string& prefix, const std::string& path) {
  const size_t slash = path.rfind('/') + 1;
  return path.substr(0, slash) + prefix + path.substr(slash);
}

bool has_prefix(const std::string& name, const char* prefix) {
  return name.rfind(prefix, 0) == 0;
}

// Returns the name without a prefix that it may have.
std::string without_prefix(const std::string& name, const char* prefix) {
  return has_prefix(name, prefix) ? name.substr(std::strlen(prefix)) : name;
}

// Returns whether rename_over() makes this name. A user's own names stay.
bool is_replaced_name(const std::string& name) {
  const auto place = without_prefix(name, kReplaced);
  return place != name &&
         is_checkpoint_name(without_prefix(without_prefix(place, kDamaged), kLeft));
}

// Returns whether a save makes this name for an unfinished directory or link, or for a
// checkpoint that it removes.
bool is_temporary_name(const std::string& name) {
  const auto rest = without_prefix(name, kTemporary);
  return rest != name &&
         (parse_number<uint32_t>(rest) || rest == "best" || is_checkpoint_name(rest));
}

// Restores checkpoints that rename_over() has renamed but not yet replaced.
void restore_replaced(const std::string& directory) {
  for (const auto& name : file_exists(directory) ? list_directory(directory)
                                                 : std::vector<std::string>()) {
    if (is_replaced_name(name)) {
      const std::string replaced = directory + "/" + name;
      const std::string place = directory + "/" + without_prefix(name, kReplaced);
      if (file_exists(place)) {
        remove_all(replaced);
      } else {
        rename_to(replaced, place);
      }
    }
  }
}

// Renames a directory to `to`, and replaces `to` if it exists. rename() cannot replace
// a directory that is not empty. If the file system can exchange two directories, a
// complete checkpoint is at `to` at every moment; network file systems cannot.
void rename_over(const std::string& from, const std::string& to) {
  if (!file_exists(to)) {
    rename_to(from, to);
    return;
  }
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    remove_all(from);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    cannot_rename(from, to);
  }
  const std::string replaced = with_prefix(kReplaced, to);
  rename_to(to, replaced);
  try {
    rename_to(from, to);
  } catch (const DataError&) {
    restore_replaced(to.substr(0, to.rfind('/')));
    throw;
  }
  remove_all(replaced);
}

// Renames a directory, so that it no longer counts as a checkpoint.
void set_aside(const std::string& path, const std::string& prefix) {
  rename_over(path, with_prefix(prefix, path));
}

// Removes unfinished checkpoints, which a killed run may have left.
void remove_temporaries(const std::string& directory) {
  for (const auto& name : list_directory(directory)) {
    if (is_temporary_name(name)) {
      remove_all(directory + "/" + name);
    }
  }
}

std::string file_in(const std::string& path, const std::string& name) {
  return path + "/" + name;
}

template <typename Action>
std::string damage_found_by(Action&& action) {
  try {
    action();
  } catch (const OtherFormat&) {
    throw;
  } catch (const DataError& error) {
    return first_line(error);
  }
  return "";
}

// Returns a description of the damage to a checkpoint's files, "" if they are intact.
// Throws if a file exists but cannot be read, because the checkpoint may still be
// intact.
std::string damage_of(const std::string& path) {
  const auto missing = [&](const std::string& name) {
    return "[checkpoint] '" + file_in(path, name) + "' is missing";
  };
  for (const char* name : {kModelFile, kTrainingFile}) {
    if (!file_exists(file_in(path, name))) {
      return missing(name);
    }
  }
  const auto model = read_file(file_in(path, kModelFile));
  const auto training = read_file(file_in(path, kTrainingFile));
  std::map<std::string, std::string> of_ranks;
  std::string damage = damage_found_by([&] {
    of_ranks = rank_hashes(parse_checkpoint_files(path, model, training).training);
  });
  for (const auto& [name, hash] : of_ranks) {
    const auto file = file_in(path, name);
    if (!file_exists(file)) {
      return missing(name);
    }
    const auto bytes = read_file(file);
    damage = damage_found_by([&, &hash = hash] { parse_rank_file(bytes, file, hash); });
    if (!damage.empty()) {
      break;
    }
  }
  return damage;
}

// Returns whether no value is NaN or, unless `may_be_infinite`, infinite. Does not use
// at::isfinite(), because LibTorch would start another set of threads for the thread
// that writes checkpoints.
bool all_finite(const at::Tensor& tensor, bool may_be_infinite) {
  const at::Tensor values = tensor.detach().cpu().contiguous();
  bool finite = true;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, values.scalar_type(), "all_finite", [&] {
        const auto* value = values.data_ptr<scalar_t>();
        for (int64_t i = 0; i < values.numel(); ++i) {
          const auto wide = static_cast<double>(value[i]);
          finite =
              finite && (std::isfinite(wide) || (may_be_infinite && std::isinf(wide)));
        }
      });
  return finite;
}

void check_finite(const CheckpointContent& content) {
  for (const auto& [name, tensor] : content.state.model) {
    const bool may_be_infinite = content.infinite_buffers.count(name) > 0;
    if (at::isFloatingType(tensor.scalar_type()) &&
        !all_finite(tensor, may_be_infinite)) {
      throw ValuesNotFinite(
          "[checkpoint] '" + name +
          "' has values that are not finite, so nothing was saved; lower --lr, or set "
          "--clip-norm");
    }
  }
}

void add_best(const BestTest& best, std::map<std::string, std::string>& metadata) {
  if (best.step >= 0) {
    metadata["best_loss"] = float_text(best.loss);
    metadata["best_step"] = std::to_string(best.step);
    metadata["evaluations_since_best"] = std::to_string(best.evaluations_since);
  }
}

BestTest best_in(const SafetensorsFile& file, const std::string& path) {
  if (text(file, "best_step").empty()) {
    return {};
  }
  const auto loss = parse_number<double>(text(file, "best_loss"));
  if (!loss) {
    fail_checkpoint(path, "has no best_loss");
  }
  return {
      *loss, number(file, "best_step", path),
      number(file, "evaluations_since_best", path)};
}

void add_time(const RunTime& time, std::map<std::string, std::string>& metadata) {
  metadata["train_seconds"] = float_text(time.train_seconds);
  metadata["train_samples"] = float_text(time.samples);
  metadata["program_seconds"] = float_text(time.program_seconds);
  metadata["earlier_program_seconds"] = float_text(time.earlier_program_seconds);
  metadata["program_start"] = time.program_start;
}

RunTime time_in(const SafetensorsFile& file) {
  const auto value = [&](const char* key) {
    const double found = parse_number<double>(text(file, key)).value_or(0);
    return std::isfinite(found) ? std::max(0.0, found) : 0;
  };
  return {
      value("train_seconds"), value("train_samples"), value("program_seconds"),
      value("earlier_program_seconds"), text(file, "program_start")};
}

using Averages = std::map<std::string, at::Tensor>;

Averages averages_in(const SafetensorsFile& training) {
  const std::string prefix = std::string(kEma) + "/";
  Averages averages;
  for (const auto& [name, tensor] : training.tensors) {
    if (name.rfind(prefix, 0) == 0) {
      averages[name.substr(prefix.size())] = tensor;
    }
  }
  return averages;
}

// Returns the average of a tensor of `model`, or the tensor itself if it is a buffer. A
// parameter with several names has an average under only one of its names.
at::Tensor average_of(
    const NamedTensor& entry, const std::vector<NamedTensor>& model,
    const Averages& averages) {
  if (const auto found = averages.find(entry.name); found != averages.end()) {
    return found->second;
  }
  for (const auto& [name, tensor] : model) {
    const auto found = averages.find(name);
    if (found != averages.end() && tensor.sizes() == entry.tensor.sizes() &&
        tensor.scalar_type() == entry.tensor.scalar_type() &&
        tensor.equal(entry.tensor)) {
      return found->second;
    }
  }
  return entry.tensor;
}

// Returns the model of a checkpoint with the averages in its training state.
SafetensorsFile averaged_model(const OpenCheckpoint& checkpoint) {
  const auto& path = checkpoint.path();
  if (!checkpoint.has_training()) {
    throw ConfigError(
        "[checkpoint] '" + file_in(parent_of(path), kTrainingFile) +
        "' is missing, expected moving averages in it; name a checkpoint's directory, "
        "or leave out --ema");
  }
  const auto files = checkpoint.read();
  const auto averages = averages_in(files.training);
  if (averages.empty()) {
    throw ConfigError(
        "[checkpoint] '" + path +
        "' has no moving averages, expected a checkpoint of a run with --ema-decay; "
        "leave out --ema");
  }
  if (number(files.training, "step", path) == 0) {
    return files.model;
  }
  auto averaged = files.model;
  for (auto& entry : averaged.tensors) {
    entry.tensor = average_of(entry, files.model.tensors, averages);
  }
  return averaged;
}

bool is_link(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

// Makes DIRECTORY/best a link to a checkpoint. Replaces another link atomically, before
// the checkpoint of that link is removed.
void link_best(const std::string& directory, const std::string& checkpoint) {
  const std::string temporary = directory + "/" + kTemporary + "best";
  const std::string link = directory + "/best";
  const std::string name = checkpoint.substr(checkpoint.rfind('/') + 1);
  std::error_code none;
  if (std::filesystem::read_symlink(link, none) == name) {
    return;
  }
  if (symlink(name.c_str(), temporary.c_str()) != 0 ||
      std::rename(temporary.c_str(), link.c_str()) != 0) {
    throw DataError(
        "[checkpoint] cannot create the link '" + link + "': " + std::strerror(errno) +
        "; remove --keep-best, or choose another --out");
  }
  sync_directory(directory);
}

void forget_dangling_best(const std::string& directory) {
  const std::string best = directory + "/best";
  if (is_link(best) && !file_exists(best)) {
    remove_all(best);
  }
}

// Removes a checkpoint. Renames it first, so that a partly removed directory does not
// count as a checkpoint.
void remove_checkpoint(const std::string& path) {
  const std::string temporary = with_prefix(kTemporary, path);
  if (std::rename(path.c_str(), temporary.c_str()) == 0) {
    remove_all(temporary);
  }
}

void remove_surplus(
    const std::string& directory, int64_t best_step, const KeptCheckpoints& kept) {
  auto all = checkpoints_in(directory);
  const auto best = all.find(best_step);
  auto surplus = kept.newest > 0 ? static_cast<int64_t>(all.size()) - kept.newest : 0;
  if (kept.best && best != all.end()) {
    link_best(directory, best->second);
  }
  for (auto entry = all.begin(); surplus > 0; ++entry, --surplus) {
    if (!kept.best || entry != best) {
      remove_checkpoint(entry->second);
    }
  }
  forget_dangling_best(directory);
}

// Returns the content of a file on the host of rank 0. Collective.
std::string read_on_rank_0(const std::string& path, Communicator& comm) {
  return comm.on_rank_0([&] { return read_file(path); }, "checkpoint");
}

}  // namespace

std::set<std::string> infinite_buffers(const std::vector<NamedTensor>& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : state) {
    if (!tensor.requires_grad() && tensor.isinf().any().item<bool>()) {
      names.insert(name);
    }
  }
  return names;
}

std::string save_checkpoint(
    const std::string& directory, const CheckpointContent& content,
    const KeptCheckpoints& kept, const std::function<void()>& check_run) {
  const std::string path = checkpoint_path(directory, content.position.step);
  const std::string temporary = directory + "/" + kTemporary + std::to_string(getpid());
  check_finite(content);
  if (check_run) {
    check_run();
    make_subdirectory(directory);
  } else {
    make_directories(directory);
  }
  restore_replaced(directory);
  remove_temporaries(directory);
  make_subdirectory(temporary);
  try {
    CheckpointFiles files;
    files.model = {content.state.model, content.description};
    files.training.tensors = content.state.optimizer;
    files.training.metadata = {
        {"epoch", std::to_string(content.position.epoch)},
        {"step_in_epoch", std::to_string(content.position.step_in_epoch)},
        {"step", std::to_string(content.position.step)},
        {"samples_in_epoch", std::to_string(content.position.samples_in_epoch)},
        {"config", content.config},
        {"data", content.data},
        {"threads", content.machine.threads},
        {"instruction_sets", content.machine.instruction_sets}};
    add_best(content.best, files.training.metadata);
    add_time(content.time, files.training.metadata);
    write_checkpoint_files(temporary, std::move(files), content.rank_files);
    if (check_run) {
      check_run();
    }
    rename_over(temporary, path);
    sync_directory(directory);
  } catch (...) {
    // If the folder of the run is lost, files are missing in the folder at its path.
    if (check_run) {
      check_run();
    }
    remove_all(temporary);
    throw;
  }
  remove_surplus(directory, content.best.step, kept);
  return path;
}

CheckpointContent read_checkpoint(const std::string& path, Communicator& comm) {
  // Reads the model first, so that the error names the model if both files are missing.
  const auto model_bytes = read_on_rank_0(file_in(path, kModelFile), comm);
  const auto training_bytes = read_on_rank_0(file_in(path, kTrainingFile), comm);
  auto [model, training] = parse_checkpoint_files(path, model_bytes, training_bytes);
  CheckpointContent content;
  content.position = {
      number(training, "epoch", path), number(training, "step_in_epoch", path),
      number(training, "step", path), number(training, "samples_in_epoch", path)};
  content.best = best_in(training, path);
  content.time = time_in(training);
  content.config = text(training, "config");
  content.data = text(training, "data");
  content.machine = {text(training, "threads"), text(training, "instruction_sets")};
  content.rank_hashes = rank_hashes(training);
  content.description = std::move(model.metadata);
  content.state = {std::move(model.tensors), std::move(training.tensors)};
  return content;
}

void load_checkpoint(
    const std::string& path, CheckpointContent& content, Communicator& comm,
    const std::function<void(const CheckpointContent&)>& accept) {
  auto read = read_checkpoint(path, comm);
  const TrainingState tensors = std::exchange(read.state, {});
  accept(read);
  check_fits("checkpoint", path, tensors.model, content.state.model, Fit::complete);
  check_fits(
      "checkpoint", path, tensors.optimizer, content.state.optimizer, Fit::complete);
  copy_values(tensors.model, content.state.model);
  copy_values(tensors.optimizer, content.state.optimizer);
  read.state = std::move(content.state);
  content = std::move(read);
}

std::string model_file(const std::string& path) {
  // A checkpoint that lacks its model is named with the missing file.
  if (const auto inside = file_in(path, kModelFile);
      file_exists(inside) || file_exists(file_in(path, kTrainingFile))) {
    return inside;
  }
  for (const auto& folder : {path + "/checkpoints", path}) {
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) {
      if (const auto newest = newest_checkpoint(folder); !newest.empty()) {
        return file_in(newest, kModelFile);
      }
    }
  }
  return path;
}

std::string best_checkpoint(const std::string& path) {
  for (const auto& folder : {path + "/checkpoints", path}) {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(folder, ignored);
    const auto newest = is_folder ? newest_checkpoint(folder) : "";
    if (newest.empty()) {
      continue;
    }
    const OpenCheckpoint opened(folder);
    const BestTest best = best_in(opened.read_training(), parent_of(opened.path()));
    const auto found = checkpoint_path(folder, best.step);
    if (best.step >= 0 && file_exists(found)) {
      return found;
    }
    if (newest_checkpoint(folder) != newest) {
      // The run has saved meanwhile, and may have removed the earlier best checkpoint.
      return best_checkpoint(path);
    }
    throw ConfigError(
        best.step < 0
            ? fmt::format(
                  "[checkpoint] '{}' has no evaluation yet, expected one for --best; "
                  "leave out --best",
                  path)
            : fmt::format(
                  "[checkpoint] '{}' has not kept the best checkpoint, of step {}; "
                  "leave out --best, or train with --keep-best",
                  path, best.step));
  }
  throw ConfigError(
      "[checkpoint] '" + path +
      "' has no checkpoints, expected the directory of a run for --best; leave out "
      "--best");
}

SafetensorsFile read_model(
    const std::string& path, CheckpointWeights weights, std::string* found) {
  const OpenCheckpoint checkpoint(path);
  if (found != nullptr) {
    *found = checkpoint.path();
  }
  return weights == CheckpointWeights::ema ? averaged_model(checkpoint)
                                           : checkpoint.read().model;
}

std::map<std::string, std::string> load_model_state(
    const std::string& path, const std::vector<NamedTensor>* tensors,
    CheckpointWeights weights) {
  const auto file = read_model(path, weights);
  if (tensors != nullptr) {
    check_fits("checkpoint", path, file.tensors, *tensors, Fit::complete);
    copy_values(file.tensors, *tensors);
  }
  return file.metadata;
}

std::string newest_whole_checkpoint(const std::string& directory) {
  restore_replaced(directory);
  const auto all = checkpoints_in(directory);
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry) {
    const auto& path = entry->second;
    const std::string damage = damage_of(path);
    if (damage.empty()) {
      return path;
    }
    if (std::next(entry) == all.rend()) {
      throw DataError(
          "[checkpoint] all checkpoints in '" + directory +
          "' are damaged, the oldest: " + damage +
          "; choose another --out to start again");
    }
    log_warning(damage + "; using the previous checkpoint");
    set_aside(path, kDamaged);
  }
  return "";
}

void leave_later_checkpoints(const std::string& directory, int64_t step) {
  if (file_exists(directory)) {
    remove_temporaries(directory);
  }
  const auto all = checkpoints_in(directory);
  for (auto entry = all.upper_bound(step); entry != all.end(); ++entry) {
    log_warning(
        "[checkpoint] '" + entry->second +
        "' is later than the step from which the run resumes; it is renamed to " +
        kLeft + "...");
    set_aside(entry->second, kLeft);
  }
  forget_dangling_best(directory);
}

}  // namespace tandem
