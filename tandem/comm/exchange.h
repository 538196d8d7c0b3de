#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem {

// Exchanges of numbers and texts between all ranks of a group. The functions are
// collective and block. `label` names the operation in errors.

/// Returns the numbers of all ranks, one row per rank. Every rank passes the same count
/// of numbers.
[[nodiscard]] std::vector<std::vector<int64_t>> exchange_numbers(
    const std::vector<int64_t>& mine, const std::string& label, Communicator& comm);

/// Returns the reduction of one number per rank.
[[nodiscard]] int64_t reduce_count(
    int64_t mine, ReduceOp op, const std::string& label, Communicator& comm);
[[nodiscard]] double reduce_number(
    double mine, ReduceOp op, const std::string& label, Communicator& comm);

/// Returns the texts of all ranks on rank 0, in rank order. Returns an empty list on
/// other ranks.
[[nodiscard]] std::vector<std::string> gather_texts(
    const std::string& mine, const std::string& label, Communicator& comm);

/// Returns this rank's text of the list that rank 0 passes, which has a text per rank.
/// Other ranks' `texts` are ignored.
[[nodiscard]] std::string scatter_texts(
    const std::vector<std::string>& texts, const std::string& label,
    Communicator& comm);

}  // namespace tandem
