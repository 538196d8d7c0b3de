#include "tandem/comm/c10d_store.h"

#include "tandem/base/deadline.h"
#include "tandem/core/torch_compat.h"

namespace tandem {

namespace {

using Bytes = std::vector<uint8_t>;

std::string to_text(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

Bytes to_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

class C10dStore : public c10d::Store {
 public:
  C10dStore(
      std::shared_ptr<StoreClient> client, std::string prefix,
      std::chrono::milliseconds timeout, std::weak_ptr<const AddressFilter> admission)
      : c10d::Store(timeout),
        client_(std::move(client)),
        prefix_(std::move(prefix)),
        deadline_(timeout),
        admission_(std::move(admission)) {}

  c10::intrusive_ptr<c10d::Store> clone() TANDEM_STORE_CLONE_OVERRIDE {
    return c10::make_intrusive<C10dStore>(client_, prefix_, timeout_, admission_);
  }

  void set(const std::string& key, const Bytes& value) override {
    if (const auto admission = admission_.lock()) {
      admission->apply();
    }
    client_->set(full(key), to_text(value));
  }

  Bytes compareSet(
      const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return to_bytes(
        client_->compare_set(full(key), to_text(expected), to_text(desired)));
  }

  Bytes get(const std::string& key) override {
    return to_bytes(client_->get(full(key), deadline_.left()));
  }

  int64_t add(const std::string& key, int64_t value) override {
    return client_->add(full(key), value);
  }

  bool deleteKey(const std::string& key) override {
    return client_->remove(full(key));
  }

  bool check(const std::vector<std::string>& keys) override {
    return client_->has(full(keys));
  }

  int64_t getNumKeys() override {
    return client_->num_keys();
  }

  void wait(const std::vector<std::string>& keys) override {
    wait(keys, timeout_);
  }

  // Ignores the timeout, because Gloo passes a shorter timeout than the remaining time
  // (kWaitsForConnection in backends/gloo.cpp).
  void wait(
      const std::vector<std::string>& keys,
      const std::chrono::milliseconds& /*timeout*/) override {
    client_->wait(full(keys), deadline_.left());
  }

 private:
  std::string full(const std::string& key) const {
    return prefix_ + "/" + key;
  }
  std::vector<std::string> full(std::vector<std::string> keys) const {
    for (auto& key : keys) {
      key = full(key);
    }
    return keys;
  }

  std::shared_ptr<StoreClient> client_;
  std::string prefix_;
  Deadline deadline_;
  std::weak_ptr<const AddressFilter> admission_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> make_c10d_store(
    std::shared_ptr<StoreClient> client, const std::string& prefix,
    std::chrono::milliseconds timeout, std::weak_ptr<const AddressFilter> admission) {
  return c10::make_intrusive<C10dStore>(
      std::move(client), prefix, timeout, std::move(admission));
}

}  // namespace tandem
