#include "tandem/train/agreement/start_checks.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <fmt/core.h>

#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/sha256.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/comm/exchange.h"
#include "tandem/config/fields.h"

namespace tandem {

namespace {

at::Tensor digest_of(const std::string& text) {
  std::string digest = sha256_hex(text.data(), text.size());
  return at::from_blob(digest.data(), {static_cast<int64_t>(digest.size())}, at::kChar)
      .clone();
}

// Lowest rank with a text that differs from rank 0's text.
struct Difference {
  int rank = 0;
  // Name of the host of `rank`.
  std::string host;
  // Index of the text.
  size_t at = 0;
  // Rank whose text is ""; -1: neither of both.
  int without = -1;
};

Difference difference_at(
    int rank, int64_t at, const at::Tensor& digests, Communicator& comm) {
  const auto nothing = digest_of("");
  Difference found;
  found.rank = rank;
  found.host = comm.broadcast_text(host_name(), rank, "host");
  found.at = static_cast<size_t>(at);
  found.without = digests[rank][at].equal(nothing) ? rank
                  : digests[0][at].equal(nothing)  ? 0
                                                   : -1;
  return found;
}

// All ranks pass the same number of texts.
std::optional<Difference> find_difference(
    const std::vector<std::string>& texts, const std::string& label,
    Communicator& comm) {
  std::vector<at::Tensor> digests;
  for (const auto& text : texts) {
    digests.push_back(digest_of(text));
  }
  const auto all = comm.stack(at::stack(digests), label);
  for (int rank = 1; rank < comm.size(); ++rank) {
    for (int64_t i = 0; i < all.size(1); ++i) {
      if (!all[rank][i].equal(all[0][i])) {
        return difference_at(rank, i, all, comm);
      }
    }
  }
  return std::nullopt;
}

void check_same_settings(const RunConfig& config, Communicator& comm) {
  const std::set<std::string> compared_later = {
      "mean", "std", "target_mean", "target_std"};
  std::vector<std::string> values;
  std::vector<const Field*> fields;
  for (const auto& field : config_fields()) {
    // check_same_normalization() compares normalizations.
    if (!field.local && compared_later.count(field.name) == 0) {
      fields.push_back(&field);
      const auto text = field.text(config);
      values.push_back(field.is_path(text) ? "a file" : text);
    }
  }
  if (const auto found = find_difference(values, "settings", comm)) {
    const auto& field = *fields[found->at];
    throw ConfigError(fmt::format(
        "[train] {} differs between rank {} and rank 0 (here it is {}; rank {} is on "
        "{}); start all ranks with the same {}",
        field.name, found->rank, values[found->at], found->rank, found->host,
        field.flag()));
  }
}

void check_same_data(const DataParts& data, Communicator& comm) {
  constexpr const char* kAction =
      "give all hosts the same files, or name the folder of each host with --data";
  // Parts in the order of parts_of(), with two texts each. Data may lack the last part.
  constexpr const char* kParts[] = {"training", "test", "validation"};
  std::vector<std::string> values;
  for (const auto& part : data) {
    values.push_back(part.second);
  }
  values.resize(2 * std::size(kParts));
  const auto found = find_difference(values, "data", comm);
  if (!found) {
    return;
  }
  if (found->without >= 0) {
    throw ConfigError(fmt::format(
        "[train] rank {} has no {} part, expected the parts of rank {} (rank {} is on "
        "{}); {}",
        found->without, kParts[found->at / 2], found->without == 0 ? found->rank : 0,
        found->rank, found->host, kAction));
  }
  throw ConfigError(fmt::format(
      "[train] the {} differ between rank {} and rank 0 (here: {}; rank {} is on {}); "
      "{}",
      data[found->at].first, found->rank, values[found->at], found->rank, found->host,
      kAction));
}

}  // namespace

void check_same_run(
    const RunConfig& config, const DataParts& data, Communicator& comm) {
  check_same_settings(config, comm);
  if (config.model.kind == ModelKind::file && comm.size() > 1) {
    comm.check_equal("the files of --model", sha256_of_file(network_file(config)));
  }
  comm.check_equal("whether --out is given", config.output.out.empty() ? "no" : "yes");
  comm.check_equal(
      "whether --resume is given", config.output.resume.empty() ? "no" : "yes");
  check_same_data(data, comm);
}

void check_same_normalization(const DataOptions& settled, Communicator& comm) {
  for (const auto& [flag, values] :
       {std::pair("--mean", settled.mean.values()),
        std::pair("--std", settled.std.values()),
        std::pair("--target-mean", settled.target_mean.values()),
        std::pair("--target-std", settled.target_std.values())}) {
    std::vector<std::string> texts;
    for (const double value : values) {
      texts.push_back(float_text(value));
    }
    comm.check_equal("the values of " + std::string(flag), join(texts));
  }
}

void check_same_steps(
    int64_t samples, int64_t steps, Uneven uneven, Communicator& comm) {
  const auto rows = exchange_numbers({samples, steps}, "step counts", comm);
  const auto& first = rows[0];
  for (size_t rank = 1; rank < rows.size(); ++rank) {
    const auto& row = rows[rank];
    if (row[1] != first[1] || (uneven == Uneven::error && row[0] != first[0])) {
      throw ConfigError(fmt::format(
          "[data] uneven: rank 0 has {} samples in {} steps, rank {} has {} in {}; "
          "choose --uneven pad, drop or join",
          first[0], first[1], rank, row[0], row[1]));
    }
  }
}

}  // namespace tandem
