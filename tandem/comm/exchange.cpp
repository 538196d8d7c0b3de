#include "tandem/comm/exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

namespace tandem {

namespace {

constexpr int kTextTag = 1;

// Returns a tensor of at least `bytes` bytes. Its elements have 8 bytes, because some
// backends limit the number of elements.
at::Tensor words_for(size_t bytes) {
  return at::zeros({static_cast<int64_t>((bytes + 7) / 8)}, at::kLong);
}

void send_text(
    const std::string& text, int rank, const std::string& label, Communicator& comm) {
  if (!text.empty()) {
    const auto words = words_for(text.size());
    std::memcpy(words.data_ptr(), text.data(), text.size());
    comm.send(words, rank, kTextTag, label)->wait();
  }
}

std::string receive_text(
    int64_t bytes, int rank, const std::string& label, Communicator& comm) {
  const auto size = static_cast<size_t>(bytes);
  const auto words = words_for(size);
  if (size > 0) {
    comm.recv(words, rank, kTextTag, label)->wait();
  }
  return {static_cast<const char*>(words.data_ptr()), size};
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

std::vector<std::string> gather_texts(
    const std::string& mine, const std::string& label, Communicator& comm) {
  const auto sizes = exchange_numbers({static_cast<int64_t>(mine.size())}, label, comm);
  if (comm.rank() != 0) {
    send_text(mine, 0, label, comm);
    return {};
  }
  std::vector<std::string> texts = {mine};
  for (int rank = 1; rank < comm.size(); ++rank) {
    const int64_t size = sizes[static_cast<size_t>(rank)][0];
    texts.push_back(receive_text(size, rank, label, comm));
  }
  return texts;
}

std::string scatter_texts(
    const std::vector<std::string>& texts, const std::string& label,
    Communicator& comm) {
  const auto sizes = at::zeros({comm.size()}, at::kLong);
  auto* size_of = sizes.data_ptr<int64_t>();
  if (comm.rank() == 0) {
    std::transform(texts.begin(), texts.end(), size_of, [](const auto& text) {
      return static_cast<int64_t>(text.size());
    });
  }
  comm.broadcast(sizes, 0, label)->wait();
  if (comm.rank() != 0) {
    return receive_text(size_of[comm.rank()], 0, label, comm);
  }
  for (int rank = 1; rank < comm.size(); ++rank) {
    send_text(texts[static_cast<size_t>(rank)], rank, label, comm);
  }
  return texts[0];
}

}  // namespace tandem
