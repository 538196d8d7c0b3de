#include "tandem/comm/exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "tandem/base/error.h"

namespace tandem {

namespace {

constexpr int kTextTag = 1;

// Returns a tensor of at least `bytes` bytes. Its elements have 8 bytes, because some
// backends limit the number of elements.
at::Tensor words_for(size_t bytes) {
  return at::zeros({static_cast<int64_t>((bytes + 7) / 8)}, at::kLong);
}

}  // namespace

std::vector<std::vector<int64_t>> exchange_numbers(
    const std::vector<int64_t>& mine, const std::string& label, Communicator& comm) {
  const auto count = static_cast<int64_t>(mine.size());
  const auto row = at::empty({count}, at::kLong);
  std::copy(mine.begin(), mine.end(), row.data_ptr<int64_t>());
  const auto all = comm.stack(row, label);
  std::vector<std::vector<int64_t>> rows;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto* first = all.data_ptr<int64_t>() + rank * count;
    rows.emplace_back(first, first + count);
  }
  return rows;
}

int64_t reduce_count(
    int64_t mine, ReduceOp op, const std::string& label, Communicator& comm) {
  const auto number = at::full({1}, mine, at::kLong);
  comm.all_reduce(number, op, label)->wait();
  return number.item<int64_t>();
}

double reduce_number(
    double mine, ReduceOp op, const std::string& label, Communicator& comm) {
  const auto number = at::full({1}, mine, at::kDouble);
  comm.all_reduce(number, op, label)->wait();
  return number.item<double>();
}

void send_text(
    const std::string& text, int to, const std::string& label, Communicator& comm) {
  const auto size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  comm.send(size, to, kTextTag, label)->wait();
  if (!text.empty()) {
    const auto words = words_for(text.size());
    std::memcpy(words.data_ptr(), text.data(), text.size());
    comm.send(words, to, kTextTag, label)->wait();
  }
}

std::string receive_text(int from, const std::string& label, Communicator& comm) {
  const auto size_of = at::zeros({1}, at::kLong);
  comm.recv(size_of, from, kTextTag, label)->wait();
  const auto size = static_cast<size_t>(size_of.item<int64_t>());
  const auto words = words_for(size);
  if (size > 0) {
    comm.recv(words, from, kTextTag, label)->wait();
  }
  return {static_cast<const char*>(words.data_ptr()), size};
}

std::vector<std::string> gather_texts(
    const std::string& mine, const std::string& label, Communicator& comm) {
  if (comm.rank() != 0) {
    send_text(mine, 0, label, comm);
    return {};
  }
  std::vector<std::string> texts = {mine};
  for (int rank = 1; rank < comm.size(); ++rank) {
    texts.push_back(receive_text(rank, label, comm));
  }
  return texts;
}

void on_all_ranks(
    const std::function<void()>& action, const std::string& label, Communicator& comm) {
  std::exception_ptr mine;
  std::string message;
  try {
    action();
  } catch (const DataError& error) {
    mine = std::current_exception();
    message = first_line(error);
  }
  const auto first = static_cast<int>(
      reduce_count(mine ? comm.rank() : comm.size(), ReduceOp::min, label, comm));
  if (first == comm.size()) {
    return;
  }
  message = comm.broadcast_text(message, first, label);
  if (mine) {
    std::rethrow_exception(mine);
  }
  throw DataError(message);
}

}  // namespace tandem
