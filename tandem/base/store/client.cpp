#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/store/handshake.h"
#include "tandem/base/store/protocol.h"
#include "tandem/base/store/store.h"
#include "tandem/base/text.h"
#include "tandem/base/wait_notice.h"

namespace tandem {

using store_protocol::Handshake;
using store_protocol::Operation;
using store_protocol::receive_frame;
using store_protocol::send_frame;
using store_protocol::Status;
using Clock = std::chrono::steady_clock;

namespace {

// Extra time for the server's answer to arrive if a wait has timed out.
constexpr Milliseconds kLateAnswer{2'000};
// Timeout of one attempt to connect. An address that does not answer must not block the
// host's next address or the next attempt.
constexpr Milliseconds kAttempt{10'000};
// Minimum timeout of the last attempt, whose error is reported.
constexpr Milliseconds kLastAttempt(100);
// Timeout of the handshake.
constexpr Milliseconds kGreeting{2'000};

// Returns a time as rounded seconds, because the rest of a timeout can be a few
// milliseconds short.
std::string seconds_text(Milliseconds time) {
  const auto unit = time.count() >= 500 ? 100 : 1;
  const auto rounded = (time.count() + unit / 2) / unit * unit;
  return fmt::format("{} s", static_cast<double>(rounded) / 1000);
}

// Performs the handshake. Returns false if no store answers.
bool is_trusted_by(
    Socket& socket, const std::string& address, const std::string& token) {
  switch (store_protocol::shake_hands(socket, token, Clock::now() + kGreeting)) {
    case Handshake::ok:
      return true;
    case Handshake::denied:
      throw DeniedError(address);
    case Handshake::other_version:
      throw ConfigError(
          "[store] the run at " + address +
          " uses another version of the store's protocol; install the same tandem on "
          "every host");
    case Handshake::no_answer:
      break;
  }
  return false;
}

std::string encode(
    Operation operation, Milliseconds timeout, std::vector<std::string> texts) {
  return store_protocol::encode({operation, timeout.count(), std::move(texts)});
}

// Splits keys into groups that fit into a request.
std::vector<std::vector<std::string>> in_requests(
    const std::vector<std::string>& keys) {
  constexpr size_t kMost = store_protocol::kMostTexts;
  std::vector<std::vector<std::string>> requests;
  for (size_t at = 0; at == 0 || at < keys.size(); at += kMost) {
    const auto first = keys.begin() + static_cast<std::ptrdiff_t>(at);
    const auto count = std::min(kMost, keys.size() - at);
    requests.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
  }
  return requests;
}

int64_t to_number(const std::string& what, const std::string& text) {
  if (const auto number = parse_number<int64_t>(text)) {
    return *number;
  }
  throw CommError("store " + what, "the store answered '" + text + "'");
}

}  // namespace

DeniedError::DeniedError(const std::string& address)
    : ConfigError(
          "[store] the run at " + address +
          " has a different token; give every host a copy of the same file "
          "(--token-file or TANDEM_TOKEN_FILE), and on one host start all ranks as the "
          "same user") {}

StoreClient::StoreClient(
    const std::string& address, Milliseconds timeout, const std::string& token)
    : address_(address), token_(token) {
  const auto start = Clock::now();
  const auto deadline = start + timeout;
  auto pause = Milliseconds(1);
  WaitNotice notice(start);
  std::string cause;
  for (;;) {
    try {
      const auto now = Clock::now();
      socket_ = connect_once(
          address, std::min(std::max(deadline, now + kLastAttempt), now + kAttempt));
      if (socket_ && is_trusted_by(socket_, address, token)) {
        return;
      }
      cause =
          socket_ ? "another kind of server answers there" : "no server answers there";
      if (notice.is_due(cause)) {
        log_info("[store] waiting for host 0 at " + address + ": " + cause);
      }
    } catch (const ResolveError& error) {
      cause = error.reason();
      warn_if_unresolved_since(start, error);
    }
    const auto now = Clock::now();
    if (now >= deadline) {
      break;
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
    pause = std::min(pause * 2, Milliseconds(200));
  }
  throw CommError(
      "joining the run at " + address,
      cause + ", after " + seconds_text(timeout) +
          "; check that rank 0 runs at MASTER_ADDR and MASTER_PORT");
}

std::string StoreClient::call(
    const std::string& what, const std::string& request, Milliseconds timeout) {
  TANDEM_CHECK(
      request.size() <= store_protocol::kMaxFrameBytes,
      "store " + what + " takes " + std::to_string(request.size()) + " bytes");
  const std::lock_guard<std::mutex> lock(mutex_);
  const Milliseconds patience = patience_;
  const auto allowed =
      timeout.count() > 0 ? timeout + std::min(patience, kLateAnswer) : patience;
  const auto deadline = Clock::now() + allowed;
  std::string reply;
  if (gone_ || !send_frame(socket_, request, deadline) ||
      !receive_frame(socket_, reply, deadline)) {
    const bool silent = !gone_ && Clock::now() >= deadline;
    hang_up();
    throw CommError(
        "store " + what,
        "the store at " + address_ +
            (silent ? " gave no answer within " + seconds_text(allowed) : " is gone"));
  }
  switch (static_cast<Status>(reply[0])) {
    case Status::ok:
      return reply.substr(1);
    case Status::timed_out:
      if (reply.size() > 1) {
        throw CommError(
            "joining the run", printable(reply.substr(1)) + " did not arrive within " +
                                   seconds_text(timeout) +
                                   "; start every rank, or raise --timeout-seconds");
      }
      throw CommError(
          "store " + what,
          "no answer within " + seconds_text(timeout) +
              ": a rank has not arrived; start every rank, or raise --timeout-seconds");
    case Status::refused:
      throw ConfigError(reply.substr(1));
    case Status::full:
      throw CommError(
          "store " + what, fmt::format(
                               "the store is full: it holds at most {} MiB",
                               store_protocol::kMostTableBytes >> 20));
    default:
      throw CommError("store " + what, "the store rejected the request");
  }
}

// The socket stays open, so that no other file gets its number while a call may use it.
void StoreClient::hang_up() {
  gone_ = true;
  ::shutdown(socket_.fd(), SHUT_RDWR);
}

void StoreClient::greet(const Greeting& greeting) {
  call("greet", encode(Operation::greet, {}, to_texts(greeting)), {});
}

void StoreClient::set(const std::string& key, const std::string& value) {
  call("set " + key, encode(Operation::set, {}, {key, value}), {});
}

std::string StoreClient::get(const std::string& key, Milliseconds timeout) {
  return call("get " + key, encode(Operation::get, timeout, {key}), timeout);
}

void StoreClient::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (const auto& some : in_requests(keys)) {
    call("wait for " + join(some), encode(Operation::wait, timeout, some), timeout);
    timeout = std::max(
        Milliseconds(0),
        std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
  }
}

int64_t StoreClient::add(const std::string& key, int64_t amount) {
  const auto request = encode(Operation::add, {}, {key, std::to_string(amount)});
  return to_number("add " + key, call("add " + key, request, {}));
}

std::string StoreClient::compare_set(
    const std::string& key, const std::string& expected, const std::string& desired) {
  return call(
      "compare_set " + key,
      encode(Operation::compare_set, {}, {key, expected, desired}), {});
}

bool StoreClient::has(const std::vector<std::string>& keys) {
  const auto requests = in_requests(keys);
  return std::all_of(requests.begin(), requests.end(), [&](const auto& some) {
    return call("has " + join(some), encode(Operation::has, {}, some), {}) == "1";
  });
}

bool StoreClient::remove(const std::string& key) {
  return call("remove " + key, encode(Operation::remove, {}, {key}), {}) == "1";
}

int64_t StoreClient::num_keys() {
  const auto reply = call("num_keys", encode(Operation::num_keys, {}, {}), {});
  return to_number("num_keys", reply);
}

}  // namespace tandem
