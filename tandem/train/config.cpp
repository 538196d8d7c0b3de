#include "tandem/train/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"

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
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// A TOML float has a point or an exponent.
std::string float_text(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

void check_at_least(const char* field, int64_t value, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (value < least || value > kMost) {
    throw ConfigError(fmt::format(
        "[config] {} is {}, expected {} to {}; change --{}", field, value, least, kMost,
        with(field, '_', '-')));
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
      {"model", "model", &C::model, "which network; see the end"},
      {"model", "loss", &C::loss, "auto, cross_entropy, nll or mse"},
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
      {"parallel", "buffers", &C::buffers, "broadcast, average or off: batch norm's"},
      {"parallel", "executor", &C::executor, "auto or eager"},
      {"parallel", "precision", &C::precision, "fp32 or fp64"},
      {"parallel", "device", &C::device, "auto or cpu"},
      {"ranks", "nproc", &C::nproc, "ranks on this host; auto: one per usable CPU"},
      {"ranks", "ranks", &C::ranks, "process or thread"},
      {"ranks", "backend", &C::backend, "auto, gloo, or thread for thread ranks"},
      {"ranks", "nnodes", &C::nnodes, "hosts"},
      {"ranks", "node_rank", &C::node_rank, "which of them this is, from 0"},
      {"ranks", "master_addr", &C::master_addr, "address of node 0"},
      {"ranks", "master_port", &C::master_port, "port at node 0; 0: a free one"},
      {"ranks", "timeout_seconds", &C::timeout_seconds,
       "longest wait for another rank"},
      {"output", "out", &C::out, "run directory; none: nothing is written"},
      {"output", "resume", &C::resume, "checkpoint to go on from, or auto"},
      {"output", "checkpoint_every", &C::checkpoint_every,
       "also save every N steps; 0: at the end of epochs"},
      {"output", "keep_checkpoints", &C::keep_checkpoints, "newest to keep; 0: all"},
      {"output", "log_every", &C::log_every, "steps between reports"},
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

void check(const RunConfig& config) {
  check_at_least("epochs", config.epochs, 0);
  check_at_least("batch_size", config.batch_size, 1);
  check_at_least("accumulate", config.accumulate, 1);
  check_at_least("limit", config.limit, 0);
  check_at_least("seed", config.seed, 0);
  check_at_least("bucket_bytes", config.bucket_bytes, 1);
  check_at_least("checkpoint_every", config.checkpoint_every, 0);
  check_at_least("keep_checkpoints", config.keep_checkpoints, 0);
  check_at_least("log_every", config.log_every, 1);
  check_at_least("eval_batch_size", config.eval_batch_size, 1);
  check_at_least("nnodes", config.nnodes, 1);
  check_one_of("reduction", config.reduction, {"mean", "sum"});
  check_one_of("ranks", config.ranks, {"process", "thread"});
  check_one_of("precision", config.precision, {"fp32", "fp64"});
  check_one_of("device", config.device, {"auto", "cpu"});
  if (!(config.timeout_seconds > 0) || !(config.std > 0) || !(config.clip_norm >= 0)) {
    throw ConfigError(
        "[config] timeout_seconds and std must be positive, clip_norm 0 or more; "
        "change "
        "--timeout-seconds, --std or --clip-norm");
  }
  if (config.resume == "auto" && config.out.empty()) {
    throw ConfigError(
        "[config] resume is auto, but there is no run directory; name it with --out");
  }
  const int ranks = config.num_ranks_here();
  if (config.ranks == "thread" && config.nnodes > 1) {
    throw ConfigError(
        "[config] thread ranks live in one process, but there are " +
        std::to_string(config.nnodes) + " nodes; use --ranks process");
  }
  const bool thread_backend = config.backend == "thread";
  if (config.backend != "auto" && thread_backend != (config.ranks == "thread") &&
      ranks > 1) {
    throw ConfigError(
        "[config] backend " + config.backend + " does not serve " + config.ranks +
        " ranks; use --backend auto");
  }
}

}  // namespace tandem
