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
/// Use the store only to form a group, because none of its waits lasts longer than
/// until `timeout` after its construction. If `admission` still exists, set() calls
/// admission->apply() before other ranks can read the value, which may be the address
/// of a new port.
c10::intrusive_ptr<c10d::Store> make_c10d_store(
    std::shared_ptr<StoreClient> client, const std::string& prefix,
    std::chrono::milliseconds timeout, std::weak_ptr<const AddressFilter> admission);

}  // namespace tandem
