#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/base/store/store.h"
#include "tandem/comm/shm/shm.h"

namespace tandem {

/// A store server on a Unix socket in a temporary directory.
class TestStore {
 public:
  TestStore() : server_("unix:" + directory_ + "/store") {}
  ~TestStore() {
    remove_all(directory_);
  }
  TestStore(const TestStore&) = delete;
  TestStore& operator=(const TestStore&) = delete;

  std::shared_ptr<StoreClient> client() const {
    return std::make_shared<StoreClient>(server_.address(), Milliseconds(5'000));
  }

 private:
  std::string directory_ = make_private_directory();
  StoreServer server_;
};

/// Like run_ranks(), with communicators that each thread creates over a store.
inline void run_joining_ranks(
    int size, const std::function<void(Communicator&)>& body,
    const std::function<
        std::unique_ptr<Communicator>(std::shared_ptr<StoreClient>, int rank)>& make) {
  const TestStore store;
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::unique_ptr<Communicator>> communicators(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      // Kept until all ranks have ended, except a rank that fails, so that the others
      // notice.
      auto& mine = communicators[static_cast<size_t>(rank)];
      try {
        mine = make(store.client(), rank);
        body(*mine);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (!first_error) {
          first_error = std::current_exception();
        }
        mine.reset();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  // Rank 0 last: it may still be in an operation that the others did not enter.
  while (!communicators.empty()) {
    communicators.pop_back();
  }
  if (first_error) {
    std::rethrow_exception(first_error);
  }
}

/// Runs ranks over shared memory: threads of this process with separate mappings
/// (except in test_shm, see tests/comm/shm/one_mapping.cpp).
inline void run_shm_ranks(
    int size, const std::function<void(Communicator&)>& body,
    std::chrono::milliseconds timeout = std::chrono::milliseconds(20'000)) {
  ShmOptions options;
  options.timeout = timeout;
  run_joining_ranks(size, body, [&](auto store, int rank) {
    return make_shm_communicator(store, "test", rank, size, options);
  });
}

}  // namespace tandem
