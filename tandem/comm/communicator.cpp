#include "tandem/comm/communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tandem/core/arena.h"
#include "tandem/core/trace.h"
#include "tandem/launch/status/rank_status.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

// Largest part of a text in one broadcast, because backends limit the number of
// elements.
constexpr size_t kTextBytes = size_t{16} << 20;

class FinishedWork : public Work {
 public:
  bool test() override {
    return true;
  }
  void wait(std::chrono::milliseconds) override {}
  void on_end(std::function<void()> then) override {
    then();
  }
};

void check_numel(
    const std::string& operation, const at::Tensor& whole, const at::Tensor& part,
    int size) {
  if (whole.numel() != part.numel() * size ||
      whole.scalar_type() != part.scalar_type()) {
    throw ConfigError(
        "[comm] " + operation + " needs " + std::to_string(size) + " x " +
        std::to_string(part.numel()) + " elements of one dtype, got " +
        std::to_string(whole.numel()) + "; pad the tensor");
  }
}

}  // namespace

void Work::on_end(std::function<void()>) {}

// The name of an operation. Its text is built only for an error, because building it
// takes longer than a small all-reduce.
struct OperationName {
  const char* operation;
  int64_t sequence;
  std::string label;

  std::string_view short_text() const {
    return label.empty() ? std::string_view(operation) : label;
  }

  std::string text() const {
    return std::string(operation) + " #" + std::to_string(sequence) +
           (label.empty() ? "" : " (" + label + ")");
  }
};

// Work that adds the operation's name to errors of the backend and measures the time in
// wait(). `traced` is the operation in the owner's trace; null without a trace.
class CheckedWork : public Work {
 public:
  CheckedWork(
      Communicator& owner, OperationName name, WorkPtr work,
      std::shared_ptr<Trace::Operation> traced)
      : owner_(owner),
        name_(std::move(name)),
        work_(std::move(work)),
        traced_(std::move(traced)) {
    if (traced_) {
      work_->on_end([operation = traced_] { operation->end(); });
    }
  }

  bool test() override {
    const bool ended = work_->test();
    if (ended && traced_) {
      traced_->end();
    }
    return ended;
  }

  void wait(std::chrono::milliseconds timeout) override {
    measure([&] { work_->wait(timeout); });
  }

  void wait_on_host() override {
    measure([&] { work_->wait_on_host(); });
  }

  void on_end(std::function<void()> then) override {
    work_->on_end(std::move(then));
  }

 private:
  template <typename Wait>
  void measure(const Wait& wait) {
    const ReportedWait reported(name_.operation, name_.sequence, name_.label);
    const TraceSpan span(
        traced_ ? owner_.trace_ : nullptr, "wait", "wait ", name_.short_text());
    const auto start = Clock::now();
    try {
      wait();
    } catch (const std::exception& error) {
      owner_.stats_.waited_seconds += seconds_since(start);
      throw owner_.named_error(name_, error);
    }
    owner_.stats_.waited_seconds += seconds_since(start);
    if (traced_) {
      traced_->end();
    }
  }

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  Communicator& owner_;
  OperationName name_;
  WorkPtr work_;
  std::shared_ptr<Trace::Operation> traced_;
};

template <typename Start>
WorkPtr Communicator::launch(
    const char* operation, const std::string& label, const at::Tensor& payload,
    Start&& start) {
  if (size_ == 1) {
    return std::make_shared<FinishedWork>();
  }
  ++sequence_;
  ++stats_.operations;
  stats_.bytes += static_cast<int64_t>(payload.nbytes());
  OperationName name{operation, sequence_, label};
  Trace* const trace = trace_ != nullptr && trace_->in_section() ? trace_ : nullptr;
  const TraceSpan span(trace, "launch", "launch ", name.short_text());
  std::shared_ptr<Trace::Operation> traced;
  if (trace != nullptr) {
    traced = trace->start_operation(
        operation, std::string(name.short_text()),
        static_cast<int64_t>(payload.nbytes()));
  }
  // Starting an operation can also wait for other ranks.
  const ReportedWait reported(operation, sequence_, label);
  try {
    return std::make_shared<CheckedWork>(*this, name, start(), std::move(traced));
  } catch (const CommError& error) {
    throw named_error(name, error);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw named_error(name, error);
  }
}

// Returns an error with the operation's name. If a group that this group uses threw
// `error`, keeps only the cause of that error.
CommError Communicator::named_error(
    const OperationName& name, const std::exception& error) const {
  const auto* inner = dynamic_cast<const CommError*>(&error);
  const int peer = failed_peer();
  return CommError(
      name.text(), inner != nullptr ? inner->cause() : first_line(error),
      peer >= 0 ? std::optional<int>(peer) : std::nullopt);
}

void Communicator::check_tensor(const char* operation, const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.is_contiguous()) {
    throw ConfigError(
        "[comm] " + std::string(operation) +
        " got a tensor that is not contiguous; call .contiguous() and copy the result "
        "back");
  }
  if (!takes(tensor.device())) {
    throw ConfigError(
        "[comm] " + std::string(operation) + " got a tensor on " +
        tensor.device().str() + ", but backend " + backend_ + " needs tensors on " +
        device().str() + "; copy the tensor");
  }
}

void Communicator::check_root(const char* operation, int root) const {
  if (root < 0 || root >= size_) {
    throw ConfigError(
        "[comm] " + std::string(operation) + " got rank " + std::to_string(root) +
        ", expected 0 to " + std::to_string(size_ - 1) + "; correct it");
  }
}

void Communicator::check_peer(const char* operation, int peer) const {
  check_root(operation, peer);
  if (peer == rank_) {
    throw ConfigError(
        "[comm] " + std::string(operation) + " got rank " + std::to_string(peer) +
        ", which is this rank; copy the tensor instead");
  }
}

WorkPtr Communicator::all_reduce(
    at::Tensor tensor, ReduceOp op, const std::string& label) {
  check_tensor("all_reduce", tensor);
  return launch("all_reduce", label, tensor, [&] { return do_all_reduce(tensor, op); });
}

WorkPtr Communicator::broadcast(at::Tensor tensor, int root, const std::string& label) {
  check_tensor("broadcast", tensor);
  check_root("broadcast", root);
  return launch("broadcast", label, tensor, [&] { return do_broadcast(tensor, root); });
}

WorkPtr Communicator::reduce_scatter(
    at::Tensor output, at::Tensor input, const std::string& label) {
  check_tensor("reduce_scatter", output);
  check_tensor("reduce_scatter", input);
  check_numel("reduce_scatter", input, output, size_);
  if (size_ == 1 && !is_own_slice(output, input)) {
    output.view(-1).copy_(input.view(-1));
  }
  return launch(
      "reduce_scatter", label, input, [&] { return do_reduce_scatter(output, input); });
}

WorkPtr Communicator::all_gather(
    at::Tensor output, at::Tensor input, const std::string& label) {
  check_tensor("all_gather", output);
  check_tensor("all_gather", input);
  check_numel("all_gather", output, input, size_);
  if (size_ == 1 && !is_own_slice(input, output)) {
    output.view(-1).copy_(input.view(-1));
  }
  return launch(
      "all_gather", label, output, [&] { return do_all_gather(output, input); });
}

WorkPtr Communicator::scatter(
    at::Tensor output, at::Tensor input, int root, const std::string& label) {
  check_tensor("scatter", output);
  check_root("scatter", root);
  if (rank_ == root) {
    check_tensor("scatter", input);
    check_numel("scatter", input, output, size_);
  }
  if (size_ == 1) {
    output.view(-1).copy_(input.view(-1));
  }
  return launch(
      "scatter", label, output, [&] { return do_scatter(output, input, root); });
}

WorkPtr Communicator::gather(
    at::Tensor output, at::Tensor input, int root, const std::string& label) {
  check_tensor("gather", input);
  check_root("gather", root);
  if (rank_ == root) {
    check_tensor("gather", output);
    check_numel("gather", output, input, size_);
  }
  if (size_ == 1) {
    output.view(-1).copy_(input.view(-1));
  }
  return launch("gather", label, input, [&] { return do_gather(output, input, root); });
}

WorkPtr Communicator::send(
    at::Tensor tensor, int peer, int tag, const std::string& label) {
  check_tensor("send", tensor);
  check_peer("send", peer);
  return launch("send", label, tensor, [&] { return do_send(tensor, peer, tag); });
}

WorkPtr Communicator::recv(
    at::Tensor tensor, int peer, int tag, const std::string& label) {
  check_tensor("recv", tensor);
  check_peer("recv", peer);
  return launch("recv", label, tensor, [&] { return do_recv(tensor, peer, tag); });
}

std::unique_ptr<Communicator> Communicator::split(int color) {
  auto group = do_split(color);
  group->set_trace(trace_);
  return group;
}

void Communicator::barrier(const std::string& label) {
  all_reduce(
      at::zeros({1}, at::TensorOptions(at::kFloat).device(device())), ReduceOp::sum,
      label.empty() ? "barrier" : label)
      ->wait_on_host();
}

at::Tensor Communicator::stack(const at::Tensor& mine, const std::string& label) {
  std::vector<int64_t> shape = {size_};
  shape.insert(shape.end(), mine.sizes().begin(), mine.sizes().end());
  const auto input = mine.contiguous().to(device());
  auto all = at::empty(shape, input.options());
  all_gather(all, input, label)->wait_on_host();
  return all.to(mine.device());
}

at::Tensor Communicator::stack_digests(
    const std::string& text, const std::string& label) {
  std::string digest = sha256_hex(text.data(), text.size());
  const auto width = static_cast<int64_t>(digest.size());
  return stack(at::from_blob(digest.data(), {width}, at::kChar), label);
}

std::string Communicator::broadcast_text(
    const std::string& text, int root, const std::string& label) {
  const auto length =
      at::full({1}, static_cast<int64_t>(text.size()), at::kLong).to(device());
  broadcast(length, root, label)->wait_on_host();
  const auto size = static_cast<size_t>(length.item<int64_t>());
  std::string result = rank_ == root ? text : std::string(size, '\0');
  for (size_t first = 0; first < size; first += kTextBytes) {
    const auto count = static_cast<int64_t>(std::min(kTextBytes, size - first));
    const auto part = at::from_blob(result.data() + first, {count}, at::kChar);
    const auto sent = part.to(device());
    broadcast(sent, root, label)->wait_on_host();
    part.copy_(sent);
  }
  return result;
}

std::string Communicator::on_rank_0(
    const std::function<std::string()>& action, const std::string& label) {
  if (size_ == 1) {
    return action();
  }
  std::string text;
  std::string message;
  std::exception_ptr failure;
  if (rank_ == 0) {
    try {
      text = action();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      message = first_line(error);
    }
  }
  message = broadcast_text(message, 0, label);
  if (failure) {
    std::rethrow_exception(failure);
  }
  if (!message.empty()) {
    throw DataError(message);
  }
  return broadcast_text(text, 0, label);
}

void Communicator::check_equal(const std::string& what, const std::string& text) {
  const auto all = stack_digests(text, what);
  for (int other = 1; other < size_; ++other) {
    if (!all[0].equal(all[other])) {
      throw ConfigError(
          "[comm] " + what + " differ: rank 0 and rank " + std::to_string(other) +
          "; start all ranks with the same flags, recipe and program");
    }
  }
}

at::Tensor Communicator::make_buffer(int64_t numel, at::ScalarType dtype) {
  return heap_allocator()("buffer", 0, {dtype, at::kCPU, true, numel});
}

Communicator::Part Communicator::find_part(int color) {
  const auto colors = stack(at::full({1}, color, at::kInt), "split");
  Part part;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) {
      part.rank = part.size();
    }
    if (colors.data_ptr<int>()[other] == color) {
      part.ranks.push_back(other);
    }
  }
  return part;
}

namespace {

class SingleCommunicator : public Communicator {
 public:
  SingleCommunicator() : Communicator(0, 1, "single") {}

 protected:
  WorkPtr do_all_reduce(at::Tensor, ReduceOp) override {
    return never();
  }
  WorkPtr do_broadcast(at::Tensor, int) override {
    return never();
  }
  WorkPtr do_reduce_scatter(at::Tensor, at::Tensor) override {
    return never();
  }
  WorkPtr do_all_gather(at::Tensor, at::Tensor) override {
    return never();
  }
  WorkPtr do_scatter(at::Tensor, at::Tensor, int) override {
    return never();
  }
  WorkPtr do_gather(at::Tensor, at::Tensor, int) override {
    return never();
  }
  WorkPtr do_send(at::Tensor, int, int) override {
    return never();
  }
  WorkPtr do_recv(at::Tensor, int, int) override {
    return never();
  }
  std::unique_ptr<Communicator> do_split(int) override {
    return make_single_communicator();
  }

 private:
  [[nodiscard]] static WorkPtr never() {
    TANDEM_CHECK(false, "a group of one rank has no peers");
  }
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() {
  return std::make_unique<SingleCommunicator>();
}

}  // namespace tandem
