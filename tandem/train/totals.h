#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/train/assembly.h"

namespace tandem {

// Figures of a whole run, from the figures of each rank.

/// Returns the number of the whole model's parameters. Collective.
int64_t count_parameters(const Assembly& parts, Communicator& comm);

/// Returns the SHA-256 of the whole model's parameters, as ModelArenas computes it. It
/// does not depend on the strategy. Collective.
std::string parameters_sha256(Assembly& parts, Communicator& comm);

/// Returns this rank's communication in all its groups.
CommStats traffic(const Assembly& parts, const Communicator& comm);

/// Returns the bytes that a reduction moves of this rank's gradients: 2 per value with
/// a comm_hook.
double gradient_bytes(const RunConfig& config, const Assembly& parts);

/// Returns the bytes that a rank sent, as the mean over the ranks. Collective.
double mean_bytes(const Assembly& parts, Communicator& comm);

/// Adds the figures of all ranks, and the parts that computed them. Collective.
void add_totals(
    Summary& summary, const RunConfig& config, Assembly& parts, Communicator& comm);

/// Returns the largest value of all ranks. Collective.
double largest_over_ranks(double mine, Communicator& comm);

/// Returns the sum over all processes, in MiB. Ranks that are threads are one process.
/// Collective.
double total_memory(double mib_of_this_process, RankKind kind, Communicator& comm);

/// Returns the sum of the peaks of all ranks' devices, in MiB, or nullopt if no rank
/// uses a device. Ranks that are threads may share a device. `bytes`: the peak of this
/// rank's device, nullopt if the rank computes in main memory. Collective.
std::optional<double> total_device_memory(
    std::optional<int64_t> bytes, at::Device device, RankKind kind, Communicator& comm);

}  // namespace tandem
