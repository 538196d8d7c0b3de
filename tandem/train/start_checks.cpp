#include "tandem/train/start_checks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"

namespace tandem {

namespace {

// May differ from host to host.
bool is_local(const ConfigField& field) {
  const std::vector<std::string> names = {"name",      "data",        "nproc",
                                          "node_rank", "master_addr", "master_port",
                                          "out",       "resume",      "init"};
  return std::find(names.begin(), names.end(), field.name) != names.end();
}

at::Tensor digest_of(const std::string& text) {
  std::string digest = sha256_hex(text.data(), text.size());
  return at::from_blob(digest.data(), {static_cast<int64_t>(digest.size())}, at::kChar)
      .clone();
}

// Of scattered data each rank has other labels.
std::string describe(const Dataset& data) {
  const std::string labels =
      data.num_shares > 1
          ? fmt::format("in {} shares", data.num_shares)
          : sha256_hex(data.labels.data(), static_cast<size_t>(data.size));
  return fmt::format(
      "{} samples of {}x{}x{} in {} classes, labels {}", data.size, data.channels,
      data.height, data.width, data.num_classes, labels);
}

// The value of `key = value` in a config.toml.
std::string value_in(const std::string& toml, const std::string& key) {
  const std::string start = "\n" + key + " = ";
  const size_t at = toml.find(start);
  if (at == std::string::npos) {
    return "";
  }
  const size_t from = at + start.size();
  return toml.substr(from, toml.find('\n', from) - from);
}

}  // namespace

void check_same_run(const RunConfig& config, const Dataset& train, Communicator& comm) {
  std::vector<at::Tensor> digests;
  std::vector<const ConfigField*> fields;
  for (const auto& field : config_fields()) {
    if (!is_local(field)) {
      fields.push_back(&field);
      digests.push_back(digest_of(to_toml(config, field)));
    }
  }
  const auto all = comm.stack(at::stack(digests), "settings");
  for (int rank = 1; rank < comm.size(); ++rank) {
    for (size_t i = 0; i < fields.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      if (!all[rank][row].equal(all[0][row])) {
        throw ConfigError(fmt::format(
            "[train] rank {} has another {} than rank 0 (here it is {}); start all "
            "ranks with the same {}",
            rank, fields[i]->name, to_toml(config, *fields[i]), fields[i]->flag()));
      }
    }
  }
  comm.check_equal("whether --out is given", config.out.empty() ? "no" : "yes");
  comm.check_equal("whether --resume is given", config.resume.empty() ? "no" : "yes");
  comm.check_equal("the training data", describe(train));
}

void check_same_steps(
    int64_t samples, int64_t steps, const std::string& uneven, Communicator& comm) {
  const auto mine = at::empty({2}, at::kLong);
  mine.data_ptr<int64_t>()[0] = samples;
  mine.data_ptr<int64_t>()[1] = steps;
  const auto all = comm.stack(mine, "step counts");
  const auto* rows = all.data_ptr<int64_t>();
  for (int rank = 1; rank < comm.size(); ++rank) {
    const auto* row = rows + 2 * rank;
    if (row[1] != rows[1] || (uneven == "error" && row[0] != rows[0])) {
      throw ConfigError(fmt::format(
          "[data] uneven: rank 0 has {} samples in {} steps, rank {} has {} in {}; "
          "choose --uneven pad, drop or join",
          rows[0], rows[1], rank, row[0], row[1]));
    }
  }
}

std::string changed_settings(const std::string& earlier, const RunConfig& config) {
  std::vector<std::string> changes;
  for (const auto& field : config_fields()) {
    const std::string section = field.section;
    const std::string before = value_in(earlier, field.name);
    const std::string now = to_toml(config, field);
    if (section != "output" && section != "ranks" &&
        std::string(field.name) != "name" && !before.empty() && before != now) {
      changes.push_back(fmt::format("{} {} -> {}", field.name, before, now));
    }
  }
  return join(changes);
}

}  // namespace tandem
