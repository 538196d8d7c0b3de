#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tandem/base/store/store.h"
#include "tandem/comm/communicator.h"
#include "tandem/core/torch_compat.h"

namespace tandem {

/// Base class of communicators over LibTorch's process groups. It has the operations
/// that are equal for all process groups. Include this header only in .cpp files of
/// comm, because it includes large headers of LibTorch.
class C10dCommunicator : public Communicator {
 public:
  /// The ranks find each other through `store`, with keys that begin with `name`.
  C10dCommunicator(
      std::shared_ptr<StoreClient> store, std::string name, int rank, int size,
      std::string backend);

 protected:
  using Group = c10d::TANDEM_C10D_GROUP;
  using C10dWork = c10::intrusive_ptr<c10d::Work>;

  /// Returns the process group for the next operation of all ranks.
  virtual Group& group() = 0;

  /// Returns the process group for the next message from rank `from` to rank `to`.
  virtual Group& group_for_message(int from, int to) = 0;

  /// Returns the Work of an operation that has just started.
  [[nodiscard]] virtual WorkPtr running(C10dWork work) = 0;

  /// Returns a communicator of some ranks of this group, for do_split().
  [[nodiscard]] virtual std::unique_ptr<Communicator> make_part(
      const std::string& name, int rank, int size) = 0;

  [[nodiscard]] WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override;
  [[nodiscard]] WorkPtr do_broadcast(at::Tensor tensor, int root) override;
  [[nodiscard]] WorkPtr do_all_gather(at::Tensor output, at::Tensor input) override;
  [[nodiscard]] WorkPtr do_scatter(
      at::Tensor output, at::Tensor input, int root) override;
  [[nodiscard]] WorkPtr do_gather(
      at::Tensor output, at::Tensor input, int root) override;
  [[nodiscard]] WorkPtr do_send(at::Tensor tensor, int peer, int tag) override;
  [[nodiscard]] WorkPtr do_recv(at::Tensor tensor, int peer, int tag) override;
  std::unique_ptr<Communicator> do_split(int color) override;

  /// Returns a flat view of a tensor in a dtype that all process groups can copy.
  static at::Tensor flat(const at::Tensor& tensor);

  const std::shared_ptr<StoreClient>& store() const {
    return store_;
  }
  const std::string& name() const {
    return name_;
  }

 private:
  std::shared_ptr<StoreClient> store_;
  std::string name_;
  int num_splits_ = 0;
};

}  // namespace tandem
