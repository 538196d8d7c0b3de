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
#include "tandem/base/file_error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/checkpoint/checkpoint_metadata.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/checkpoint/checkpoint_shards.h"
#include "tandem/checkpoint/open_checkpoint.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/optim/ema.h"

namespace tandem {

namespace {

constexpr const char* kTemporary = "tmp-";
constexpr const char* kDamaged = "damaged-";
constexpr const char* kLeft = "left-";
constexpr const char* kReplaced = "replaced-";

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

// Returns a description of the damage to a checkpoint's files, "" if they are intact.
// Throws FileError if a file exists but cannot be read, because the checkpoint may
// still be intact.
std::string damage_of(const std::string& path) {
  const auto model = model_file(path);
  for (const auto& file : {model, file_in(path, kTrainingFile)}) {
    if (!file_exists(file) || file == path) {
      return "[checkpoint] '" + (file == path ? file_in(path, kModelFile) : file) +
             "' is missing";
    }
  }
  try {
    OpenCheckpoint(path).verify();
  } catch (const OtherFormat&) {
    throw;
  } catch (const FileError&) {
    throw;
  } catch (const DataError& error) {
    return first_line(error);
  }
  return "";
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
  const auto files = checkpoint.read(true);
  const auto averages = averages_in(files.training);
  if (averages.empty()) {
    throw ConfigError(
        "[checkpoint] '" + path +
        "' has no moving averages, expected a checkpoint of a run with --ema-decay; "
        "leave out --ema");
  }
  if (content_of({}, files.training.metadata, path).position.step == 0) {
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

// Completes the unfinished directory `temporary` by `write`, and makes it a checkpoint.
std::string publish(
    const std::string& directory, const std::string& temporary,
    const CheckpointContent& content, const KeptCheckpoints& kept,
    const std::function<void()>& check_run, const std::function<void()>& write) {
  const std::string path = checkpoint_path(directory, content.position.step);
  try {
    write();
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

// Returns the path of the model's file or index in a directory. A checkpoint that lacks
// its model is named with the missing file. Returns "" if the directory has no files of
// a checkpoint.
std::string model_in(const std::string& directory) {
  const std::string model = file_in(directory, kModelFile);
  const std::string index = file_in(directory, kIndexFile);
  if (file_exists(index) && !file_exists(model)) {
    return index;
  }
  return file_exists(model) || file_exists(file_in(directory, kTrainingFile)) ? model
                                                                              : "";
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

std::string unfinished_path(const std::string& directory, uint32_t number) {
  return directory + "/" + kTemporary + std::to_string(number);
}

void prepare_checkpoints(const std::string& directory) {
  make_subdirectory(directory);
  restore_replaced(directory);
  remove_temporaries(directory);
}

std::string save_checkpoint(
    const std::string& directory, const CheckpointContent& content,
    const KeptCheckpoints& kept, const std::function<void()>& check_run) {
  check_finite(content);
  if (check_run) {
    check_run();
  } else {
    make_directories(directory);
  }
  prepare_checkpoints(directory);
  const auto temporary = unfinished_path(directory, static_cast<uint32_t>(getpid()));
  make_subdirectory(temporary);
  return publish(directory, temporary, content, kept, check_run, [&] {
    CheckpointFiles files;
    files.model = {content.state.model, content.description};
    files.training = {content.state.optimizer, metadata_of(content)};
    write_checkpoint_files(temporary, std::move(files), content.rank_files);
  });
}

void save_share(
    const std::string& directory, const CheckpointContent& content,
    const CheckpointShare& share) {
  check_finite(content);
  // Missing parents are not created, because the folder of the run may be lost.
  make_subdirectory(directory);
  const auto temporary = unfinished_path(directory, share.number);
  make_subdirectory(temporary);
  write_shards(temporary, content, share);
}

std::string complete_checkpoint(
    const std::string& directory, const CheckpointContent& content,
    const CheckpointShare& share, const std::vector<std::string>& names,
    const KeptCheckpoints& kept, const std::function<void()>& check_run) {
  const auto temporary = unfinished_path(directory, share.number);
  return publish(directory, temporary, content, kept, check_run, [&] {
    write_shard_lists(temporary, content, share, names);
  });
}

std::string model_file(const std::string& path) {
  if (const auto inside = model_in(path); !inside.empty()) {
    return inside;
  }
  for (const auto& folder : {path + "/checkpoints", path}) {
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) {
      if (const auto newest = newest_checkpoint(folder); !newest.empty()) {
        const auto inside = model_in(newest);
        return inside.empty() ? file_in(newest, kModelFile) : inside;
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
    const BestTest best =
        content_of({}, opened.training_metadata(), parent_of(opened.path())).best;
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
                                           : checkpoint.read(false).model;
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
