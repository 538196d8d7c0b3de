#include "tandem/train/run_checkpoints.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/checkpoint/checkpoint_shards.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/checkpoint/resume_settings.h"
#include "tandem/comm/exchange.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/launch/restarts.h"
#include "tandem/launch/status/rank_status.h"
#include "tandem/train/checkpoint_model.h"
#include "tandem/train/machine.h"

namespace tandem {

namespace {

// Throws ConfigError if two descriptions of models name network files of different
// content.
void check_same_network(
    const std::map<std::string, std::string>& earlier,
    const std::map<std::string, std::string>& now, const std::string& file,
    const std::string& path) {
  const auto before = earlier.find(kModelHash);
  const auto found = now.find(kModelHash);
  if (before != earlier.end() && found != now.end() &&
      before->second != found->second) {
    throw ConfigError(fmt::format(
        "[resume] model is the network '{}', whose file differs from that of '{}', "
        "and a run keeps its model; name the same file with --model FILE",
        file, path));
  }
}

// Returns the names of the infinite buffers of this rank and, on rank 0, of all ranks.
// Stages of a pipeline have different buffers. Collective.
std::set<std::string> infinite_buffers_of_all(
    const ModelArenas& arenas, Communicator& comm) {
  auto all = infinite_buffers(arenas.state());
  for (const auto& names :
       gather_texts(join({all.begin(), all.end()}, "\n"), "buffers", comm)) {
    for (auto& name : split(names, '\n')) {
      all.insert(std::move(name));
    }
  }
  return all;
}

}  // namespace

RunCheckpoints::RunCheckpoints(
    const RunConfig& config, const Dataset& train, const DataParts& data,
    Communicator& comm, Assembly& parts, Observer* observer)
    : config_(config),
      train_(train),
      data_(data),
      comm_(comm),
      parts_(parts),
      observer_(observer) {}

RunCheckpoints::~RunCheckpoints() {
  if (share_ && comm_.rank() == 0) {
    writer_.wait();
    remove_all(unfinished_path(checkpoints_, share_->number));
  }
}

std::string RunCheckpoints::directory() {
  if (comm_.rank() != 0 || config_.output.out.empty()) {
    return "";
  }
  check_own_directory(config_.output.out);
  if (file_exists(config_.output.out)) {
    lock();
  }
  return config_.output.out;
}

void RunCheckpoints::make_directory() {
  if (comm_.rank() == 0 && !config_.output.out.empty() && lock_ == nullptr) {
    make_directories(config_.output.out);
    lock();
  }
}

// Locks the directory, and throws if a new run would use the directory of an earlier
// run. The new run's checkpoints have lower steps, so they would be deleted before the
// earlier run's checkpoints.
void RunCheckpoints::lock() {
  const std::string& out = config_.output.out;
  check_own_entries(out);
  lock_ = std::make_unique<RunLock>(out);
  const std::string checkpoints = out + "/checkpoints";
  const bool goes_on = config_.output.resume == "auto" || is_started_again() ||
                       is_in_folder(config_.output.resume, checkpoints);
  if (!goes_on && !newest_checkpoint(checkpoints).empty()) {
    throw ConfigError(
        "[train] '" + out +
        "' holds the checkpoints of an earlier run; continue that run with --resume "
        "auto, or choose another --out");
  }
}

void RunCheckpoints::check_folder() const {
  if (lock_ != nullptr) {
    lock_->check();
  }
}

std::string RunCheckpoints::newest() {
  return newest_before(std::numeric_limits<int64_t>::max());
}

std::string RunCheckpoints::newest_before(int64_t step) {
  end_shares();
  writer_.wait();
  std::string path;
  if (comm_.rank() == 0 && !config_.output.out.empty()) {
    const auto all = checkpoints_in(config_.output.out + "/checkpoints");
    const auto later = all.lower_bound(step);
    path = later == all.begin() ? "" : std::prev(later)->second;
  }
  return comm_.broadcast_text(path, 0, "newest checkpoint");
}

// Returns the content of a checkpoint. Its texts are computed only once, because they
// are equal in all checkpoints and can take longer than copying a small state.
CheckpointContent RunCheckpoints::content(
    TrainingState state, const RunProgress& progress) {
  if (texts_.config.empty()) {
    texts_.description = facts_of(config_, train_);
    texts_.description["num_classes"] = std::to_string(parts_.num_classes);
    texts_.config = to_toml(config_);
    texts_.data = to_text(data_);
    texts_.description[kDataParts] = texts_.data;
  }
  CheckpointContent content = texts_;
  static_cast<RunProgress&>(content) = progress;
  content.state = std::move(state);
  return content;
}

// Rank 0 chooses the checkpoint, so that all ranks resume from the same checkpoint.
// After a restart, the run's own checkpoints are newer than the checkpoint that
// --resume names.
std::string RunCheckpoints::checkpoint_to_resume() const {
  return comm_.on_rank_0(
      [&] {
        const std::string& asked = config_.output.resume;
        if (asked != "auto" && !is_started_again()) {
          return asked;
        }
        const auto newest =
            newest_whole_checkpoint(config_.output.out + "/checkpoints");
        return newest.empty() && asked != "auto" ? asked : newest;
      },
      "resume");
}

void RunCheckpoints::check_continues(
    const std::string& path, const CheckpointContent& earlier) const {
  check_kept_settings(earlier.config, config_, path);
  if (config_.model.kind == ModelKind::file) {
    check_same_network(
        earlier.description, texts_.description, network_file(config_), path);
  }
  if (earlier.data.empty()) {
    log_info(
        "[resume] '" + path +
        "' does not record its training data, so they are not compared");
    return;
  }
  const std::string missing = missing_parts(earlier.data, data_);
  if (!missing.empty()) {
    throw ConfigError(
        "[resume] the " + missing + " that '" + path +
        "' was trained with are missing, and a run keeps its data; put them back, "
        "name its data with --data, or start another run from its weights with --init");
  }
  const std::string others = other_parts(earlier.data, data_);
  if (!others.empty()) {
    throw ConfigError(
        "[resume] the " + others + " are not those that '" + path +
        "' was trained on, and a run keeps its data; name its data with --data, or "
        "start another run from its weights with --init");
  }
}

void RunCheckpoints::log_start() const {
  const std::string earlier = comm_.rank() == 0 ? config_of_earlier_run(config_) : "";
  if (earlier.empty()) {
    log_info("nothing to resume in '" + config_.output.out + "'; starting a new run");
    return;
  }
  const std::string changed = changed_settings(read_file(earlier), config_);
  log_info(fmt::format(
      "'{}' has no checkpoint; starting from step 0 with the settings of '{}'{}",
      config_.output.out, earlier, changed.empty() ? "" : ", except " + changed));
}

void RunCheckpoints::note_machine() {
  texts_.machine = machine_of(comm_);
}

void RunCheckpoints::log_machine(const Machine& earlier) const {
  const std::string changes =
      comm_.rank() == 0
          ? machine_changes(
                earlier, texts_.machine, parts_.executor->depends_on_threads())
          : "";
  if (!changes.empty()) {
    log_info("resuming with " + changes + ": results are close, not equal in bits");
  }
}

bool RunCheckpoints::resume(RunProgress& progress) {
  if (config_.output.resume.empty()) {
    return false;
  }
  const std::string path = checkpoint_to_resume();
  if (path.empty()) {
    log_start();
    return false;
  }
  note_machine();
  auto loaded = content(parts_.strategy->state_to_load(), progress);
  load_checkpoint(path, loaded, comm_, [&](const CheckpointContent& earlier) {
    check_continues(path, earlier);
  });
  progress = loaded;
  auto& position = progress.position;
  // Ranks read one sample of each share in turn, so the position is a multiple of the
  // number of shares. If the number of ranks has changed, the next smaller multiple is
  // used.
  position.samples_in_epoch -= position.samples_in_epoch % train_.num_shares;
  resumed_from_ = path;
  rank_hashes_ = std::move(loaded.rank_hashes);
  if (comm_.rank() == 0 && read_earlier_settings(config_).of_checkpoint) {
    log_warning(
        "[resume] the config.toml of the run is missing or incomplete; using the "
        "settings of '" +
        path + "'");
  }
  log_info(fmt::format("resuming from {} at step {}", path, position.step));
  const std::string changed = changed_settings(loaded.config, config_);
  if (!changed.empty()) {
    log_info("resuming with " + changed);
  }
  log_machine(loaded.machine);
  return true;
}

void RunCheckpoints::resume_own(const std::vector<NamedTensor>& own) const {
  if (!resumed_from_.empty() &&
      !load_rank_file(
          resumed_from_, rank_hashes_, own, name_of(config_.strategy.kind), comm_) &&
      comm_.rank() == 0) {
    log_warning(fmt::format(
        "{} holds no state of {} ranks with strategy {}; all ranks continue from its "
        "model",
        resumed_from_, comm_.size(), name_of(config_.strategy.kind)));
  }
}

void RunCheckpoints::prepare() {
  note_machine();
  texts_.infinite_buffers = infinite_buffers_of_all(*parts_.arenas, comm_);
  if (comm_.rank() == 0) {
    // Hashes the network file before it can be changed.
    content({}, {});
    checkpoints_ = config_.output.out + "/checkpoints";
  }
  if (divides_state()) {
    find_savers();
  } else if (comm_.rank() == 0) {
    writer_.prepare(local_state(*parts_.arenas, *parts_.optimizer));
  }
}

// Makes rank 0's directory known to all ranks, and finds the ranks that find it, for
// example those of rank 0's host.
void RunCheckpoints::find_savers() {
  const auto found = find_shared_directory(checkpoints_, comm_);
  next_number_ = found.number;
  savers_ = found.ranks;
  if (comm_.rank() != 0) {
    checkpoints_ = found.path;
  }
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (config_.strategy.kind != StrategyKind::data_parallel &&
        std::count(savers_.begin(), savers_.end(), rank) == 0) {
      throw ConfigError(fmt::format(
          "[checkpoint] rank {} does not find the folder '{}' of rank 0, expected a "
          "folder that all hosts share, because the replicas of each stage save its "
          "state; set --out to such a folder, or use --shard none",
          rank, found.path));
    }
  }
}

bool RunCheckpoints::saves_share() const {
  return std::count(savers_.begin(), savers_.end(), comm_.rank()) > 0;
}

void RunCheckpoints::copy_state() {
  complete_shares();
  note(writer_.wait());
  parts_.strategy->visit_state(
      [this](const TrainingState& piece) { writer_.copy(piece); }, saves_share());
}

void RunCheckpoints::save(
    const RunProgress& progress, const std::vector<NamedTensor>& own, bool told) {
  auto rank_files = gather_rank_files(own, name_of(config_.strategy.kind), comm_);
  if (comm_.rank() != 0) {
    if (divides_state()) {
      CheckpointContent share;
      share.position = progress.position;
      share.infinite_buffers = texts_.infinite_buffers;
      start_share(share);
    }
    return;
  }
  auto whole = content({}, progress);
  whole.rank_files = std::move(rank_files);
  told_ = told;
  if (divides_state()) {
    start_share(whole);
    unfinished_ = std::move(whole);
    return;
  }
  writer_.start(checkpoints_, std::move(whole), kept(), [this] { check_folder(); });
}

KeptCheckpoints RunCheckpoints::kept() const {
  return {config_.output.keep_checkpoints, config_.output.keep_best};
}

// Starts to write the share of this rank, if it has one.
void RunCheckpoints::start_share(const CheckpointContent& content) {
  const auto place = std::find(savers_.begin(), savers_.end(), comm_.rank());
  share_ = {
      static_cast<int>(place - savers_.begin()), static_cast<int>(savers_.size()),
      parts_.strategy->divides_model(), !parts_.optimizer->state().empty(),
      next_number_++};
  writer_.start(
      content, [this, directory = checkpoints_, share = *share_,
                saves = saves_share()](const CheckpointContent& mine) {
        if (!saves) {
          return "";
        }
        check_folder();
        try {
          save_share(directory, mine, share);
        } catch (const DataError&) {
          check_folder();
          throw;
        }
        return "";
      });
}

// Waits until all ranks have written their shares. If they have, rank 0 starts to
// complete the checkpoint. Returns the outcome of this rank.
std::optional<SaveOutcome> RunCheckpoints::end_shares() {
  if (!share_) {
    return std::nullopt;
  }
  const auto outcome = writer_.wait();
  const auto share = *std::exchange(share_, std::nullopt);
  const bool written =
      reduce_count(outcome->error ? 0 : 1, ReduceOp::min, "shares", comm_) == 1;
  failed_ = outcome->error;
  if (comm_.rank() != 0) {
    return outcome;
  }
  if (!written) {
    remove_all(unfinished_path(checkpoints_, share.number));
    return outcome;
  }
  writer_.start(
      std::exchange(unfinished_, {}),
      [this, directory = checkpoints_, kept = kept(), share,
       names = tensor_names(parts_.arenas->state())](const CheckpointContent& content) {
        return complete_checkpoint(
            directory, content, share, names, kept, [this] { check_folder(); });
      });
  return outcome;
}

void RunCheckpoints::complete_shares() {
  const auto outcome = end_shares();
  if (outcome && outcome->error) {
    note(outcome);
  }
}

void RunCheckpoints::poll() {
  if (!share_) {
    note(writer_.poll());
  }
  tell_observer();
}

void RunCheckpoints::finish() {
  end_shares();
  take(writer_.wait());
  tell_observer();
  if (failed_) {
    std::rethrow_exception(failed_);
  }
}

void RunCheckpoints::take(const std::optional<SaveOutcome>& outcome) {
  if (!outcome) {
    return;
  }
  failed_ = outcome->error;
  if (failed_) {
    return;
  }
  report_checkpoint(outcome->step);
  if (told_) {
    complete_.push_back(outcome->path);
  }
}

void RunCheckpoints::tell_observer() {
  for (const auto& path : std::exchange(complete_, {})) {
    if (observer_ != nullptr) {
      observer_->on_checkpoint(path);
    }
  }
}

void RunCheckpoints::note(const std::optional<SaveOutcome>& outcome) {
  take(outcome);
  if (!outcome || !failed_) {
    return;
  }
  try {
    std::rethrow_exception(failed_);
  } catch (const ValuesNotFinite&) {
    throw;
  } catch (const FolderLost&) {
    throw;
  } catch (const std::exception&) {
    if (config_.output.on_save_error == OnSaveError::stop) {
      throw;
    }
    log_warning(fmt::format(
        "the checkpoint of step {} is missing, and the run continues: {}",
        outcome->step, reason_of(*outcome)));
  }
}

}  // namespace tandem
