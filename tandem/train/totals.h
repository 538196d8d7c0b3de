#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// Figures of a whole run, put together from what each rank has. All collective.

/// Of the whole model, wherever its stages are.
int64_t count_parameters(const Assembly& parts, Communicator& comm);

/// SHA-256 of the whole model's parameters, as Arena's: independent of the strategy.
std::string parameters_sha256(Assembly& parts, Communicator& comm);

/// What this rank did in all groups that it is in. Not collective.
CommStats traffic(const Assembly& parts, const Communicator& comm);

/// Bytes of this rank's gradients as a reduction moves them: 16 bits each with a
/// comm_hook.
double gradient_bytes(const RunConfig& config, const Assembly& parts);

/// Bytes that a rank handed over, mean over the ranks.
double mean_bytes(const Assembly& parts, Communicator& comm);

/// Adds what all ranks did together, and what computed it. Collective.
void add_totals(
    Summary& summary, const RunConfig& config, Assembly& parts, Communicator& comm);

double largest_over_ranks(double mine, Communicator& comm);

/// The peaks of all processes added up; thread ranks are one process. Collective.
double total_memory(double mib_of_this_process, RankKind kind, Communicator& comm);

/// MiB, the same of what ranks took of their devices; thread ranks on one device share
/// it. `bytes`: this rank's device's, none: it computes in main memory. None where all
/// do. Collective.
std::optional<double> total_device_memory(
    std::optional<int64_t> bytes, at::Device device, RankKind kind, Communicator& comm);

}  // namespace tandem
