#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tandem {

/// Every setting of a training run. Needs no LibTorch, so the thin program reads
/// it too. A field's name is its recipe key; its flag has dashes for underscores.
/// What each means is said once, in config_fields().
struct RunConfig {
  std::string name = "run";

  std::string model = "net";
  std::string init;
  bool dropout = true;
  std::string data = "digits";
  double mean = 0.1307;
  double std = 0.3081;
  int64_t limit = 0;
  std::string uneven = "pad";
  std::string share = "sampler";
  bool reshuffle = true;

  int64_t epochs = 1;
  int64_t batch_size = 64;
  int64_t accumulate = 1;
  std::string loss = "auto";
  std::string reduction = "mean";
  int64_t seed = 0;

  std::string optimizer = "adadelta";
  double lr = -1;
  double weight_decay = -1;
  bool decay_bias_and_norm = true;
  double eps = -1;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  bool amsgrad = false;
  double rho = 0.9;
  double clip_norm = 0;
  double min_delta = 0;

  std::string schedule = "constant";
  double gamma = 0.7;
  int64_t step_size = 1;
  double min_lr = 0;
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 10000;
  int64_t warmup_steps = 0;

  std::string strategy = "data_parallel";
  std::string sync = "overlap";
  std::string optimizer_state = "auto";
  int64_t bucket_bytes = 1048576;
  std::string buffers = "broadcast";
  std::string comm_hook = "none";
  std::string average_every = "epoch";
  int64_t stages = 0;
  int64_t replicas = 0;
  std::string pipeline_schedule = "1f1b";
  std::string server_updates = "synchronous";
  int64_t max_staleness = 4;
  std::string drift_check = "stop";
  std::string executor = "auto";
  std::string precision = "fp32";
  std::string loss_scale = "none";
  std::string device = "auto";

  std::string nproc = "1";
  std::string ranks = "process";
  std::string backend = "auto";
  std::string launcher = "tandem";
  int64_t nnodes = 1;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 0;
  double timeout_seconds = 300;
  double grace_seconds = 30;

  std::string out;
  std::string resume;
  int64_t checkpoint_every = 0;
  double checkpoint_minutes = 0;
  int64_t keep_checkpoints = 3;
  int64_t log_every = 10;
  std::string log_at = "last+end";
  std::string log_ranks = "0";
  std::string start_line;
  std::string log_line;
  std::string epoch_line;
  std::string converged_line;
  std::string test_line;
  std::string end_line;
  int64_t eval_every = 1;
  int64_t eval_batch_size = 1000;
  bool trace = false;
  bool dry_run = false;

  /// nproc as a number; "auto" is the usable CPUs. Throws ConfigError.
  int num_ranks_here() const;
};

/// Describes one field of RunConfig: flags, recipe keys, --set, help and the
/// resolved config.toml all come from this table.
struct ConfigField {
  using Member = std::variant<
      std::string RunConfig::*, int64_t RunConfig::*, double RunConfig::*,
      bool RunConfig::*>;

  const char* section;
  const char* name;
  Member member;
  const char* help;

  /// "--batch-size".
  std::string flag() const;
};
const std::vector<ConfigField>& config_fields();

/// The field of a name, with dashes or underscores. Throws ConfigError (naming
/// the nearest); `where` says what to change, for instance "recipe.toml:3".
const ConfigField& find_field(const std::string& name, const std::string& where);

/// Sets a field from text. Throws ConfigError when the text is not of its type.
void set_field(
    RunConfig& config, const ConfigField& field, const std::string& text,
    const std::string& where);

/// The value as a recipe writes it.
std::string to_toml(const RunConfig& config, const ConfigField& field);

/// The whole config as a recipe that repeats the run.
std::string to_toml(const RunConfig& config);

/// Throws ConfigError for a number out of range, or settings that contradict
/// each other. Names of models and the like are checked by those who know them.
void check(const RunConfig& config);

/// Reads a recipe (TOML) over `config`. A recipe may name another as its `base`,
/// relative to itself, which is read first.
///
/// Throws DataError when the file cannot be read, ConfigError with file and line
/// for what is wrong in it.
void read_recipe(RunConfig& config, const std::string& path);

}  // namespace tandem
