#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/step_sums.h"

namespace tandem {

// Exchanges of numbers, texts and sums between all ranks of a group. The functions are
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

/// Sends a text to another rank, which must call receive_text(). Only these two ranks
/// take part; the calls block.
void send_text(
    const std::string& text, int to, const std::string& label, Communicator& comm);
[[nodiscard]] std::string receive_text(
    int from, const std::string& label, Communicator& comm);

/// Calls `action` on every rank. If it throws DataError on some ranks, all ranks throw:
/// these ranks their errors, the others the error of the first of these ranks.
void on_all_ranks(
    const std::function<void()>& action, const std::string& label, Communicator& comm);

/// Returns the sum of `mine` over all ranks, in main memory. Collective.
inline StepSums of_all_ranks(
    const StepSums& mine, Communicator& comm, const char* label) {
  auto tensor = mine.tensor().cpu().clone();
  comm.all_reduce(tensor, ReduceOp::sum, label)->wait();
  return StepSums(tensor);
}

}  // namespace tandem
