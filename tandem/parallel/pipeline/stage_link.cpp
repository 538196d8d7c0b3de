#include "tandem/parallel/pipeline/stage_link.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <sstream>
#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/exchange.h"

namespace tandem {

namespace {

// Length of a message with a shape: dtype, number of dims, dims.
constexpr int64_t kShapeLength = 10;
constexpr int kShapeTag = 0;
constexpr int kStateTag = 0;

int tag_of(int64_t micro_batch) {
  return static_cast<int>(micro_batch) + 1;
}

// Returns one line per tensor: dtype, number of dims, dims, name.
std::string describe_tensors(const std::vector<NamedTensor>& tensors) {
  std::ostringstream text;
  for (const auto& [name, tensor] : tensors) {
    text << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim();
    for (const int64_t dim : tensor.sizes()) {
      text << ' ' << dim;
    }
    text << ' ' << name << '\n';
  }
  return text.str();
}

std::vector<NamedTensor> make_described(const std::string& description) {
  std::vector<NamedTensor> tensors;
  std::istringstream text(description);
  int dtype = 0;
  size_t num_dims = 0;
  while (text >> dtype >> num_dims) {
    std::vector<int64_t> dims(num_dims);
    for (auto& dim : dims) {
      text >> dim;
    }
    std::string name;
    std::getline(text >> std::ws, name);
    tensors.push_back({name, at::empty(dims, static_cast<at::ScalarType>(dtype))});
  }
  return tensors;
}

}  // namespace

void StageLink::send_shape(const at::Tensor& output) {
  const auto message = at::zeros({kShapeLength}, at::kLong);
  auto* values = message.data_ptr<int64_t>();
  TANDEM_CHECK(output.dim() + 1 < kShapeLength, "activations have too many dims");
  values[0] = static_cast<int64_t>(output.scalar_type());
  values[1] = output.dim() - 1;
  for (int64_t dim = 1; dim < output.dim(); ++dim) {
    values[1 + dim] = output.size(dim);
  }
  pipeline_.send(message, pipeline_.rank() + 1, kShapeTag, "activation shape")->wait();
}

StageLink::SampleShape StageLink::receive_shape() {
  const auto message = at::zeros({kShapeLength}, at::kLong);
  pipeline_.recv(message, pipeline_.rank() - 1, kShapeTag, "activation shape")->wait();
  const auto* values = message.data_ptr<int64_t>();
  return {
      static_cast<at::ScalarType>(values[0]),
      std::vector<int64_t>(values + 2, values + 2 + values[1])};
}

at::Tensor StageLink::receive_activations(
    int64_t micro_batch, int64_t count, bool training) {
  auto& shape = shape_received_[training ? 1 : 0];
  if (!shape) {
    shape = receive_shape();
  }
  std::vector<int64_t> dims = {count};
  dims.insert(dims.end(), shape->dims.begin(), shape->dims.end());
  auto activations = at::empty(dims, at::TensorOptions(shape->dtype).device(device_));
  pipeline_.recv(activations, pipeline_.rank() - 1, tag_of(micro_batch), "activations")
      ->wait();
  return activations;
}

void StageLink::send_activations(
    int64_t micro_batch, const at::Tensor& output, bool training) {
  bool& shape_sent = shape_sent_[training ? 1 : 0];
  if (!shape_sent) {
    send_shape(output);
    shape_sent = true;
  }
  const auto message = output.detach().contiguous();
  activations_[micro_batch] = {
      message, pipeline_.send(
                   message, pipeline_.rank() + 1, tag_of(micro_batch), "activations")};
}

void StageLink::wait_for_activations(int64_t micro_batch) {
  const auto sent = activations_.find(micro_batch);
  TANDEM_CHECK(sent != activations_.end(), "activations that were not sent");
  sent->second.work->wait();
  activations_.erase(sent);
}

at::Tensor StageLink::receive_gradient(int64_t micro_batch) {
  const auto sent = activations_.find(micro_batch);
  TANDEM_CHECK(
      sent != activations_.end(), "a gradient of activations that were not sent");
  auto gradient = at::empty_like(sent->second.tensor);
  pipeline_
      .recv(gradient, pipeline_.rank() + 1, tag_of(micro_batch), "activation gradients")
      ->wait();
  sent->second.work->wait();
  activations_.erase(sent);
  return gradient;
}

void StageLink::send_gradient(int64_t micro_batch, const at::Tensor& gradient) {
  // Limits the number of sent gradients that the previous stage has not yet received.
  while (static_cast<int>(gradients_.size()) >= pipeline_.size()) {
    gradients_.front().work->wait();
    gradients_.pop_front();
  }
  const auto message = gradient.contiguous();
  gradients_.push_back(
      {message, pipeline_.send(
                    message, pipeline_.rank() - 1, tag_of(micro_batch),
                    "activation gradients")});
}

void StageLink::finish() {
  for (auto& sent : activations_) {
    sent.second.work->wait();
  }
  activations_.clear();
  for (; !gradients_.empty(); gradients_.pop_front()) {
    gradients_.front().work->wait();
  }
}

std::vector<NamedTensor> gather_tensors(
    Communicator& comm, std::vector<NamedTensor> mine) {
  const auto descriptions = gather_texts(describe_tensors(mine), "state", comm);
  if (comm.rank() != 0) {
    for (const auto& [name, tensor] : mine) {
      comm.send(tensor.detach().cpu().contiguous(), 0, kStateTag, name)->wait();
    }
    return mine;
  }
  auto all = std::move(mine);
  for (int rank = 1; rank < comm.size(); ++rank) {
    for (auto& entry : make_described(descriptions[static_cast<size_t>(rank)])) {
      comm.recv(entry.tensor, rank, kStateTag, entry.name)->wait();
      all.push_back(std::move(entry));
    }
  }
  return all;
}

}  // namespace tandem
