#include "tandem/train/totals.h"

#include <algorithm>
#include <map>
#include <vector>

#include "tandem/base/sha256.h"
#include "tandem/comm/exchange.h"
#include "tandem/comm/rpc/rpc.h"
#include "tandem/optim/grad_scaler.h"

namespace tandem {

namespace {

bool is_sharded(const Assembly& parts) {
  return parts.strategy->consistency() == Consistency::sharded;
}

// Returns the number of bytes of gradients that this rank reduces in a step. With a
// comm_hook, each value has 2 bytes.
double gradient_bytes(const RunConfig& config, const Assembly& parts) {
  double bytes = 0;
  const auto& gradients = parts.arenas->gradients();
  for (const auto& range : gradients.layout().trainable_ranges()) {
    const auto size = gradients.segment(range.segment).element_size();
    const auto sent = config.strategy.comm_hook == CommHook::none ? size : 2;
    bytes += static_cast<double>(range.size() * static_cast<int64_t>(sent));
  }
  return bytes;
}

// Returns the hash of parameters of which each rank has only its part of every bucket.
// Rank 0 gathers one bucket at a time. The result is valid on rank 0. Collective.
std::string sha256_of_parts(ModelArenas& arenas, Communicator& comm) {
  Arena& parameters = arenas.parameters();
  const auto& buckets = parameters.layout().buckets();
  std::map<const at::TensorImpl*, const Bucket*> bucket_of;
  for (const auto& tensor : arenas.tensors()) {
    bucket_of[tensor.unsafeGetTensorImpl()] = nullptr;
  }
  for (const auto& bucket : buckets) {
    for (const size_t slot : bucket.slots) {
      bucket_of[arenas.tensors()[slot].unsafeGetTensorImpl()] = &bucket;
    }
  }
  const auto mine = [&](const Bucket& bucket) {
    return bucket.part(comm.rank(), comm.size());
  };
  const Bucket* whole = nullptr;
  const auto gather = [&](const Bucket* bucket) {
    if (whole != nullptr && bucket != whole) {
      parameters.release_except(whole->range, mine(*whole));
    }
    if (bucket != nullptr && bucket != whole) {
      const auto all =
          comm.rank() == 0 ? parameters.slice(bucket->range) : at::Tensor();
      comm.gather(all, parameters.slice(mine(*bucket)), 0, parameters.name())->wait();
    }
    whole = bucket;
  };
  Sha256 hash;
  for (const auto& [name, tensor] : arenas.state()) {
    const auto found = bucket_of.find(tensor.unsafeGetTensorImpl());
    if (found == bucket_of.end()) {
      continue;
    }
    gather(found->second);
    if (comm.rank() == 0) {
      const auto values = tensor.detach().contiguous().cpu();
      hash.update(name.data(), name.size() + 1);
      hash.update(values.data_ptr(), values.nbytes());
    }
  }
  gather(nullptr);
  return hash.hex_digest();
}

}  // namespace

ParameterCount count_parameters(const Assembly& parts, Communicator& comm) {
  ParameterCount count;
  for (const auto& tensor : parts.arenas->tensors()) {
    count.all += tensor.numel();
    count.frozen += tensor.requires_grad() ? 0 : tensor.numel();
  }
  if (!is_sharded(parts)) {
    return count;
  }
  const int64_t replicas = parts.strategy->data_shard().num_shards;
  for (int64_t* number : {&count.all, &count.frozen}) {
    const double sum =
        reduce_number(static_cast<double>(*number), ReduceOp::sum, "parameters", comm);
    *number = static_cast<int64_t>(sum) / replicas;
  }
  return count;
}

std::string parameters_sha256(Assembly& parts, Communicator& comm) {
  if (!is_sharded(parts)) {
    return parts.arenas->parameters_sha256();
  }
  if (parts.shard == Sharding::parameters) {
    return comm.broadcast_text(sha256_of_parts(*parts.arenas, comm), 0, "hash");
  }
  const auto state = parts.strategy->collect_state();
  if (comm.rank() != 0) {
    return comm.broadcast_text("", 0, "hash");
  }
  std::vector<NamedTensor> whole;
  for (const auto& name : parts.parameter_names) {
    for (const auto& entry : state.model) {
      if (entry.name == name) {
        whole.push_back({name, entry.tensor.detach().clone()});
      }
    }
  }
  return comm.broadcast_text(ModelArenas(whole, {}).parameters_sha256(), 0, "hash");
}

CommStats traffic(const Assembly& parts, const Communicator& comm) {
  CommStats sum = all_stats(comm);
  sum += parts.strategy->own_comm_stats();
  if (parts.statistics) {
    sum += parts.statistics->stats();
  }
  return sum;
}

void add_totals(
    Summary& summary, const RunConfig& config, Assembly& parts, Communicator& comm) {
  summary.gradient_bytes = gradient_bytes(config, parts);
  summary.bytes_sent_per_rank = reduce_number(
                                    static_cast<double>(traffic(parts, comm).bytes),
                                    ReduceOp::sum, "traffic", comm) /
                                comm.size();
  summary.world_size = comm.size();
  summary.backend = comm.backend();
  summary.executor = parts.executor->kind();
  summary.recorded_steps = parts.executor->recording_cost().steps;
  summary.recording_seconds = parts.executor->recording_cost().seconds;
  summary.shard = parts.shard;
  if (const auto* scaler = parts.optimizer->scaler()) {
    summary.skipped_steps = scaler->skipped_steps();
    summary.loss_scale = scaler->scale();
  }
  summary.measurements = parts.strategy->measurements();
  summary.parameters_sha256 = parameters_sha256(parts, comm);
}

double total_memory(double mib_of_this_process, RankKind kind, Communicator& comm) {
  const bool own_process = kind == RankKind::process || comm.rank() == 0;
  return reduce_number(
      own_process ? mib_of_this_process : 0, ReduceOp::sum, "memory", comm);
}

std::optional<double> total_device_memory(
    std::optional<int64_t> bytes, at::Device device, RankKind kind,
    Communicator& comm) {
  const auto rows =
      exchange_numbers({device.index(), bytes.value_or(-1)}, "device memory", comm);
  // Peak memory of each device, in bytes, by process and device index.
  std::map<std::pair<int, int64_t>, int64_t> peaks;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto& row = rows[static_cast<size_t>(rank)];
    if (row[1] >= 0) {
      auto& peak = peaks[{kind == RankKind::process ? rank : 0, row[0]}];
      peak = std::max(peak, row[1]);
    }
  }
  if (peaks.empty()) {
    return std::nullopt;
  }
  double sum = 0;
  for (const auto& [where, peak] : peaks) {
    sum += static_cast<double>(peak) / (1 << 20);
  }
  return sum;
}

}  // namespace tandem
