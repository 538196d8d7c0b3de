#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>

#include "tandem/base/store/address_filter.h"
#include "tandem/base/store/store.h"

namespace tandem {

/// Returns tandem's rendezvous store as a c10d::Store, for LibTorch's process groups
/// and RPC agents. `prefix` and a slash precede every key. Thread-safe. Include this
/// header only in .cpp files of comm, because it includes large headers of LibTorch.
///
/// The store is only for forming a group: all its waits end `timeout` after its
/// construction. If the object `admission` still exists, set() applies it before it
/// publishes a value, such as the address of a port, to other ranks.
c10::intrusive_ptr<c10d::Store> make_c10d_store(
    std::shared_ptr<StoreClient> client, const std::string& prefix,
    std::chrono::milliseconds timeout, std::weak_ptr<const AddressFilter> admission);

}  // namespace tandem
