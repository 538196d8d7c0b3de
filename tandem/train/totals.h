#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/train/assembly.h"

namespace tandem {

// Functions that combine the figures of all ranks into figures of the whole run.

/// Numbers of elements in a model's parameters.
struct ParameterCount {
  int64_t all = 0;
  int64_t frozen = 0;
};

/// Counts the whole model's parameters. Collective.
ParameterCount count_parameters(const Assembly& parts, Communicator& comm);

/// Returns the SHA-256 of the whole model's parameters, as
/// ModelArenas::parameters_sha256() computes it. The hash does not depend on the
/// strategy. Collective.
std::string parameters_sha256(Assembly& parts, Communicator& comm);

/// Returns the communication statistics of this rank, summed over all groups of the
/// rank.
CommStats traffic(const Assembly& parts, const Communicator& comm);

/// Sets the fields of `summary` that describe the model, the communication and the loss
/// scale, such as the bytes sent per rank and the hash of the parameters. Collective.
void add_totals(
    Summary& summary, const RunConfig& config, Assembly& parts, Communicator& comm);

/// Returns the sum of the peak memory of all rank processes, in MiB. Thread ranks are
/// one process. Collective.
double total_memory(double mib_of_this_process, RankKind kind, Communicator& comm);

/// Returns the sum of the peak memory of all devices, in MiB, or nullopt if all ranks
/// compute on the CPU. A device that several threads share counts once. `bytes` is the
/// peak memory of this rank's device, nullopt if the rank computes on the CPU.
/// Collective.
std::optional<double> total_device_memory(
    std::optional<int64_t> bytes, at::Device device, RankKind kind, Communicator& comm);

}  // namespace tandem
