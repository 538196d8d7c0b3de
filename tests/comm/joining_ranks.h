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

/// Runs `body` on `size` ranks, which are threads. Each thread creates its communicator
/// by calling `make` with a client of a common store. Rethrows the first error of a
/// rank.
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
      // A communicator exists until all ranks have ended. If a rank fails, its
      // communicator is destroyed immediately, so that the other ranks detect the
      // failure.
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
  // Destroys the communicator of rank 0 last, because rank 0 may have an unfinished
  // operation that the other ranks have not started.
  while (!communicators.empty()) {
    communicators.pop_back();
  }
  if (first_error) {
    std::rethrow_exception(first_error);
  }
}

/// Runs `body` on `size` ranks with the backend shm. The ranks are threads. Each thread
/// has a separate mapping of the shared memory, except in the program test_shm
/// (tests/comm/shm/one_mapping.cpp).
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
