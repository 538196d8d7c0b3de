#include "tandem/config/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/config/line_format.h"
#include "tandem/config/loss_setting.h"

namespace tandem {

namespace {

std::string with(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

[[noreturn]] void wrong_type(
    const ConfigField& field, const std::string& text, const std::string& where,
    const std::string& wanted) {
  throw ConfigError(
      "[config] " + where + ": " + field.name + " is '" + text + "', expected " +
      wanted);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Every number's range, ends included.
struct Range {
  const char* field;
  double least;
  double most;
  // -1 stands for the optimizer's own default.
  bool or_default = false;
};

constexpr double kMany = 1e12;
// The smallest and largest that stay finite, and not 0, in float32.
constexpr double kTiny = 1e-37;
constexpr double kLarge = 1e37;

const Range kRanges[] = {
    {"mean", -kLarge, kLarge},
    {"std", kTiny, kLarge},
    {"limit", 0, kMany},
    {"epochs", 0, 1e9},
    {"batch_size", 1, 1 << 24},
    {"accumulate", 1, 1 << 14},
    {"seed", 0, 9007199254740992},
    {"lr", 0, kLarge, true},
    {"weight_decay", 0, kLarge, true},
    {"eps", kTiny, kLarge, true},
    {"momentum", 0, 1},
    {"dampening", 0, 1},
    {"beta1", 0, 1},
    {"beta2", 0, 1},
    {"rho", 0, 1},
    {"clip_norm", 0, kLarge},
    {"min_delta", 0, kLarge},
    {"gamma", 0, kLarge},
    {"step_size", 1, 1e9},
    {"min_lr", 0, kLarge},
    {"pct_start", 0, 1},
    {"div_factor", kTiny, kLarge},
    {"final_div_factor", kTiny, kLarge},
    {"warmup_steps", 0, kMany},
    {"bucket_bytes", 1, kMany},
    {"stages", 0, 4096},
    {"replicas", 0, 4096},
    {"max_staleness", 0, kMany},
    {"nnodes", 1, 1 << 16},
    {"node_rank", 0, (1 << 16) - 1},
    {"master_port", 0, 65535},
    {"timeout_seconds", 0.001, 1e7},
    {"grace_seconds", 0, 1e6},
    {"checkpoint_every", 0, kMany},
    {"checkpoint_minutes", 0, kLarge},
    {"keep_checkpoints", 0, kMany},
    {"log_every", 1, kMany},
    {"eval_every", 1, 1 << 24},
    {"eval_batch_size", 1, 1 << 24},
};

double number_of(const RunConfig& config, const ConfigField& field) {
  if (const auto* whole = std::get_if<int64_t RunConfig::*>(&field.member)) {
    return static_cast<double>(config.**whole);
  }
  return config.*std::get<double RunConfig::*>(field.member);
}

void check_range(const RunConfig& config, const Range& range) {
  const auto& field = find_field(range.field, "check");
  const double value = number_of(config, field);
  const bool fits = value >= range.least && value <= range.most;
  if (!fits && !(range.or_default && value == -1)) {
    throw ConfigError(fmt::format(
        "[config] {} is {}, expected {} to {}{}; change {}", field.name,
        to_toml(config, field), range.least, range.most,
        range.or_default ? ", or -1 for the optimizer's default" : "", field.flag()));
  }
}

void check_one_of(
    const char* field, const std::string& value,
    const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    throw ConfigError(
        "[config] " + std::string(field) + " cannot be '" + value + "'" +
        did_you_mean(value, choices) + "; choose one of " + join(choices));
  }
}

}  // namespace

int RunConfig::num_ranks_here() const {
  if (nproc == "auto") {
    return usable_cpus();
  }
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(nproc.c_str(), &end, 10);
  if (nproc.empty() || *end != '\0' || errno != 0 || value < 1 || value > 4096) {
    throw ConfigError(
        "[config] nproc is '" + nproc +
        "', expected 1 to 4096 or auto; change --nproc");
  }
  return static_cast<int>(value);
}

std::string ConfigField::flag() const {
  return "--" + with(name, '_', '-');
}

const std::vector<ConfigField>& config_fields() {
  using C = RunConfig;
  static const std::vector<ConfigField> fields = {
      {"run", "name", &C::name, "what tables and reports call the run"},
      {"data", "data", &C::data, "digits, mnist, or a folder of IDX files"},
      {"data", "mean", &C::mean, "subtracted from pixels in 0..1"},
      {"data", "std", &C::std, "then divides them"},
      {"data", "limit", &C::limit, "use the first N samples only; 0: all"},
      {"data", "uneven", &C::uneven,
       "samples that do not divide by the ranks: pad (repeat some), drop, join "
       "(each once; ranks without any go along) or error"},
      {"data", "share", &C::share,
       "how ranks come to their samples: sampler (each reads the files) or scatter "
       "(rank 0 reads, and sends every rank an equal random share)"},
      {"data", "reshuffle", &C::reshuffle,
       "false: every epoch has the order of the first, as PyTorch's DistributedSampler "
       "without set_epoch"},
      {"model", "model", &C::model, "which network; see the end"},
      {"model", "init", &C::init,
       "weights to start from: a checkpoint, a safetensors file or one that Python's "
       "torch.save(state_dict) wrote"},
      {"model", "dropout", &C::dropout, "false: the model's dropout layers do nothing"},
      {"model", "loss", &C::loss,
       "auto (the model's own), cross_entropy (any model), nll (models that end in a "
       "log-softmax: net, convnet), or softmax_cross_entropy (of the outputs' "
       "softmax)"},
      {"model", "reduction", &C::reduction, "mean or sum over the global batch"},
      {"training", "epochs", &C::epochs, "passes over the data"},
      {"training", "batch_size", &C::batch_size, "samples per rank and micro-batch"},
      {"training", "accumulate", &C::accumulate, "micro-batches per optimizer step"},
      {"training", "seed", &C::seed, "of weights, order and dropout"},
      {"training", "optimizer", &C::optimizer, "which optimizer; see the end"},
      {"training", "lr", &C::lr, "learning rate; -1: the optimizer's default"},
      {"training", "weight_decay", &C::weight_decay, "-1: the optimizer's default"},
      {"training", "decay_bias_and_norm", &C::decay_bias_and_norm,
       "apply weight decay to biases and norms too, as PyTorch does"},
      {"training", "eps", &C::eps, "-1: the optimizer's default"},
      {"training", "momentum", &C::momentum, "of sgd"},
      {"training", "dampening", &C::dampening, "of sgd"},
      {"training", "nesterov", &C::nesterov, "of sgd"},
      {"training", "beta1", &C::beta1, "of adam and adamw"},
      {"training", "beta2", &C::beta2, "of adam and adamw"},
      {"training", "amsgrad", &C::amsgrad, "of adam and adamw"},
      {"training", "rho", &C::rho, "of adadelta"},
      {"training", "clip_norm", &C::clip_norm, "largest norm of all gradients; 0: any"},
      {"training", "min_delta", &C::min_delta,
       "converged when an epoch's loss improves by less; 0: train all epochs"},
      {"training", "schedule", &C::schedule, "how lr changes; see the end"},
      {"training", "gamma", &C::gamma, "of step: factor on the learning rate"},
      {"training", "step_size", &C::step_size, "of step: epochs between factors"},
      {"training", "min_lr", &C::min_lr, "of cosine: the last learning rate"},
      {"training", "pct_start", &C::pct_start, "of one_cycle: share that rises"},
      {"training", "div_factor", &C::div_factor, "of one_cycle: lr / first lr"},
      {"training", "final_div_factor", &C::final_div_factor,
       "of one_cycle: first lr / last lr"},
      {"training", "warmup_steps", &C::warmup_steps, "steps over which lr rises"},
      {"parallel", "strategy", &C::strategy, "how ranks stay in step; see the end"},
      {"parallel", "sync", &C::sync, "parameter, flat or overlap"},
      {"parallel", "bucket_bytes", &C::bucket_bytes, "bytes per bucket of overlap"},
      {"parallel", "buffers", &C::buffers,
       "batch norm's: broadcast, average, off, or sync (statistics of all ranks' "
       "samples in every step)"},
      {"parallel", "comm_hook", &C::comm_hook,
       "compress gradients on the way: none, fp16 or bf16"},
      {"parallel", "optimizer_state", &C::optimizer_state,
       "of data_parallel: replicated, sharded (each rank updates its share: ZeRO-1), "
       "or "
       "auto (sharded over shm); the same results"},
      {"parallel", "average_every", &C::average_every,
       "of averaging: a number of steps, epoch, or end (of the run: rank 0 gathers)"},
      {"parallel", "stages", &C::stages,
       "of pipeline: parts of the model; 0: ranks / replicas"},
      {"parallel", "replicas", &C::replicas,
       "of pipeline: copies of the pipeline; 0: ranks / stages"},
      {"parallel", "pipeline_schedule", &C::pipeline_schedule,
       "gpipe or 1f1b, which holds fewer activations"},
      {"parallel", "server_updates", &C::server_updates,
       "of parameter_server: synchronous or asynchronous"},
      {"parallel", "max_staleness", &C::max_staleness,
       "of asynchronous updates: steps that a worker may be ahead of the slowest"},
      {"parallel", "drift_check", &C::drift_check,
       "when replicas' parameters differ: stop, resync (from rank 0) or off"},
      {"parallel", "executor", &C::executor,
       "auto (onednn, or eager for what that cannot compile), onednn or eager"},
      {"parallel", "precision", &C::precision,
       "fp32, fp64, bf16 (convolutions and matrix products of training in bfloat16, "
       "parameters and gradients in float32), or auto (bf16 where the CPUs of all "
       "ranks "
       "compute in it, else fp32)"},
      {"parallel", "loss_scale", &C::loss_scale,
       "against underflow of gradients: none, dynamic, or a number"},
      {"parallel", "device", &C::device, "auto or cpu"},
      {"ranks", "nproc", &C::nproc, "ranks on this host; auto: one per usable CPU"},
      {"ranks", "ranks", &C::ranks, "process or thread"},
      {"ranks", "backend", &C::backend,
       "auto, shm (one host), shm+gloo (several), gloo, mpi (under mpirun), or thread "
       "for thread ranks"},
      {"ranks", "launcher", &C::launcher,
       "what starts the ranks: tandem, or mpirun for backend mpi"},
      {"ranks", "nnodes", &C::nnodes, "hosts"},
      {"ranks", "node_rank", &C::node_rank, "which of them this is, from 0 (also -nr)"},
      {"ranks", "master_addr", &C::master_addr, "address of node 0 (also MASTER_ADDR)"},
      {"ranks", "master_port", &C::master_port,
       "port at node 0 (also MASTER_PORT); 0: a free one"},
      {"ranks", "timeout_seconds", &C::timeout_seconds,
       "longest wait for another rank"},
      {"ranks", "grace_seconds", &C::grace_seconds,
       "for saving after SIGTERM, before ranks are killed"},
      {"output", "out", &C::out, "run directory; none: nothing is written"},
      {"output", "resume", &C::resume, "checkpoint to go on from, or auto"},
      {"output", "checkpoint_every", &C::checkpoint_every,
       "also save every N steps; 0: at the end of epochs"},
      {"output", "checkpoint_minutes", &C::checkpoint_minutes,
       "also save when so many minutes have passed; 0: never"},
      {"output", "keep_checkpoints", &C::keep_checkpoints, "newest to keep; 0: all"},
      {"output", "log_every", &C::log_every, "steps between reports"},
      {"output", "log_at", &C::log_at,
       "which of them has the report: last+end (their last, and an epoch's last), "
       "last, "
       "or first (of N steps those with {batch_index} 0, N, 2 N)"},
      {"output", "log_ranks", &C::log_ranks,
       "who reports: 0 (for all ranks together), host (the first of each host, its "
       "own numbers) or all (each its own)"},
      {"output", "start_line", &C::start_line,
       "template of a first line; {rank} {share} {epochs} and the like stand for "
       "values"},
      {"output", "log_line", &C::log_line,
       "template of reports, such as 'step {step}/{steps} loss {loss:.4f}'; loss is "
       "the "
       "mean since the last report, {batch_loss} that of the rank's last batch alone; "
       "off: none"},
      {"output", "epoch_line", &C::epoch_line,
       "template of a line after each epoch's training"},
      {"output", "converged_line", &C::converged_line,
       "template of a line when min_delta ends a rank's training"},
      {"output", "test_line", &C::test_line, "template of test results; off: none"},
      {"output", "end_line", &C::end_line, "template of the last line"},
      {"output", "eval_every", &C::eval_every,
       "evaluate after every n-th epoch, and after the last"},
      {"output", "eval_batch_size", &C::eval_batch_size,
       "samples per evaluation batch"},
      {"output", "trace", &C::trace, "write trace.json of the first steps"},
      {"output", "dry_run", &C::dry_run, "everything, but two steps only"},
  };
  return fields;
}

const ConfigField& find_field(const std::string& name, const std::string& where) {
  const std::string key = with(name, '-', '_');
  std::vector<std::string> names;
  for (const auto& field : config_fields()) {
    if (key == field.name) {
      return field;
    }
    names.emplace_back(field.name);
  }
  throw ConfigError(
      "[config] " + where + ": unknown key '" + name + "'" + did_you_mean(key, names) +
      (did_you_mean(key, names).empty() ? "; see tandem train --help" : ""));
}

void set_field(
    RunConfig& config, const ConfigField& field, const std::string& text,
    const std::string& where) {
  char* end = nullptr;
  errno = 0;
  if (const auto* member = std::get_if<std::string RunConfig::*>(&field.member)) {
    config.** member = text;
  } else if (const auto* whole = std::get_if<int64_t RunConfig::*>(&field.member)) {
    config.** whole = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || errno != 0) {
      wrong_type(field, text, where, "a whole number");
    }
  } else if (const auto* real = std::get_if<double RunConfig::*>(&field.member)) {
    config.** real = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !std::isfinite(config.**real)) {
      wrong_type(field, text, where, "a number");
    }
  } else {
    if (text != "true" && text != "false") {
      wrong_type(field, text, where, "true or false");
    }
    config.*std::get<bool RunConfig::*>(field.member) = text == "true";
  }
}

std::string to_toml(const RunConfig& config, const ConfigField& field) {
  if (const auto* member = std::get_if<std::string RunConfig::*>(&field.member)) {
    return quoted(config.**member);
  }
  if (const auto* whole = std::get_if<int64_t RunConfig::*>(&field.member)) {
    return std::to_string(config.**whole);
  }
  if (const auto* real = std::get_if<double RunConfig::*>(&field.member)) {
    return float_text(config.**real);
  }
  return config.*std::get<bool RunConfig::*>(field.member) ? "true" : "false";
}

std::string to_toml(const RunConfig& config) {
  std::string text = "format_version = 1\n";
  std::string section;
  for (const auto& field : config_fields()) {
    if (section != field.section) {
      section = field.section;
      text += "\n# " + section + "\n";
    }
    text += std::string(field.name) + " = " + to_toml(config, field) + "\n";
  }
  return text;
}

namespace {

bool is_utf8(const std::string& text) {
  size_t following = 0;
  for (const unsigned char byte : text) {
    const bool follows = (byte & 0xc0) == 0x80;
    if (follows != (following > 0)) {
      return false;
    }
    if (follows) {
      --following;
    } else if (byte >= 0x80) {
      if (byte < 0xc2 || byte > 0xf4) {
        return false;
      }
      following = byte >= 0xf0 ? 3 : (byte >= 0xe0 ? 2 : 1);
    }
  }
  return following == 0;
}

// Neither a recipe nor a checkpoint can hold anything else.
void check_texts(const RunConfig& config) {
  for (const auto& field : config_fields()) {
    const auto* member = std::get_if<std::string RunConfig::*>(&field.member);
    if (member != nullptr && !is_utf8(config.**member)) {
      throw ConfigError(
          std::string("[config] ") + field.name +
          " holds bytes that are not UTF-8; change " + field.flag());
    }
  }
}

void check_lines(const RunConfig& config) {
  const LineValues values;
  format_line("start_line", config.start_line, values);
  format_line("log_line", config.log_line, values);
  format_line("epoch_line", config.epoch_line, values);
  format_line("converged_line", config.converged_line, values);
  format_line("test_line", config.test_line, values);
  format_line("end_line", config.end_line, values);
}

void check_loss_scale(const std::string& text) {
  if (text == "none" || text == "dynamic") {
    return;
  }
  char* end = nullptr;
  const double scale = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(scale >= kTiny && scale <= kLarge)) {
    throw ConfigError(
        "[config] loss_scale is '" + text +
        "', expected none, dynamic or a number above 0; change --loss-scale");
  }
}

void check_ranks(const RunConfig& config) {
  config.num_ranks_here();
  if (config.ranks == "thread" && config.nnodes > 1) {
    throw ConfigError(
        "[config] thread ranks live in one process, but there are " +
        std::to_string(config.nnodes) + " nodes; use --ranks process");
  }
  if (config.strategy == "hogwild" && config.nnodes > 1) {
    throw ConfigError(
        "[config] hogwild's ranks share memory, but there are " +
        std::to_string(config.nnodes) +
        " nodes; use --nnodes 1, or --strategy averaging");
  }
  if (config.backend == "shm" && config.nnodes > 1) {
    throw ConfigError(
        "[config] backend shm is for ranks of one host, but there are " +
        std::to_string(config.nnodes) + " nodes; use --backend auto");
  }
  if (config.node_rank >= config.nnodes) {
    throw ConfigError(fmt::format(
        "[config] node_rank is {}, expected 0 to {} for {} nodes; change --node-rank "
        "or --nnodes",
        config.node_rank, config.nnodes - 1, config.nnodes));
  }
  const bool thread_backend = config.backend == "thread";
  if (config.backend != "auto" && thread_backend != (config.ranks == "thread")) {
    throw ConfigError(
        "[config] backend " + config.backend + " does not serve " + config.ranks +
        " ranks; use --backend auto");
  }
  if (config.launcher == "mpirun" && config.ranks == "thread") {
    throw ConfigError(
        "[config] mpirun starts processes, but ranks is thread; use --ranks process, "
        "or --launcher tandem");
  }
}

}  // namespace

void check(const RunConfig& config) {
  check_texts(config);
  for (const auto& range : kRanges) {
    check_range(config, range);
  }
  check_one_of("uneven", config.uneven, {"pad", "drop", "join", "error"});
  check_one_of("drift_check", config.drift_check, {"stop", "resync", "off"});
  check_one_of("share", config.share, {"sampler", "scatter"});
  check_one_of("comm_hook", config.comm_hook, {"none", "fp16", "bf16"});
  check_one_of(
      "optimizer_state", config.optimizer_state, {"auto", "replicated", "sharded"});
  check_one_of("pipeline_schedule", config.pipeline_schedule, {"gpipe", "1f1b"});
  check_one_of(
      "server_updates", config.server_updates, {"synchronous", "asynchronous"});
  check_one_of("launcher", config.launcher, {"tandem", "mpirun"});
  check_one_of("log_at", config.log_at, {"last+end", "last", "first"});
  check_one_of("log_ranks", config.log_ranks, {"0", "host", "all"});
  check_loss_scale(config.loss_scale);
  check_lines(config);
  check_one_of("reduction", config.reduction, {"mean", "sum"});
  check_one_of("ranks", config.ranks, {"process", "thread"});
  check_loss(config.loss);
  check_one_of("precision", config.precision, {"fp32", "fp64", "bf16", "auto"});
  check_one_of("device", config.device, {"auto", "cpu"});
  if (config.resume == "auto" && config.out.empty()) {
    throw ConfigError(
        "[config] resume is auto, but there is no run directory; name it with --out");
  }
  check_ranks(config);
}

}  // namespace tandem
