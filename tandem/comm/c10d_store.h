#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>

#include "tandem/base/store/address_filter.h"
#include "tandem/base/store/store.h"

namespace tandem {

/// Returns tandem's rendezvous store as a c10d::Store, for LibTorch's process groups
/// and RPC agents. Keys get `prefix` and a slash. Thread-safe. Include this header only
/// in .cpp files of comm, because it is heavy.
///
/// All its waits end `timeout` after it was made: it serves only while a group forms.
/// Before it passes a value such as a port to other ranks, it applies `admission` while
/// that object exists.
c10::intrusive_ptr<c10d::Store> make_c10d_store(
    std::shared_ptr<StoreClient> client, const std::string& prefix,
    std::chrono::milliseconds timeout, std::weak_ptr<const AddressFilter> admission);

}  // namespace tandem
