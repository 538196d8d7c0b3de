// The store's server gets the bytes from a client over its socket: from a client after
// its handshake if they start with kTrusted, otherwise from an untrusted client. It
// answers in whole frames, at most one per request, and continues to serve other
// clients.

#include <sys/socket.h>

#include "tandem/base/store/handshake.h"
#include "tandem/base/store/store.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/store_frames.h"

namespace {

using namespace tandem;

constexpr Milliseconds kLong{10'000};
constexpr size_t kMostAnswers = 1 << 16;
// A frame that is not sent.
const std::string kTrusted = "tandem-store 1 run";

std::string received(const Socket& socket) {
  std::string bytes(kMostAnswers, '\0');
  const ssize_t got = recv(socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(
    uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  std::minstd_rand random(seed);
  std::string rest(reinterpret_cast<const char*>(data), size);
  auto frames = fuzz::take_frames(rest);
  if (frames.empty() || random() % 4 == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  auto& frame = frames[random() % frames.size()];
  frame = fuzz::mutated_frame(frame, random);
  std::string bytes;
  for (const auto& each : frames) {
    bytes += store_protocol::encode_length(static_cast<uint32_t>(each.size())) + each;
  }
  return (bytes + rest).copy(reinterpret_cast<char*>(data), max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = "/dev/shm/fuzz-store-" + std::to_string(getpid());
  StoreServer server("unix:" + path, "run");
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  Socket stranger = connect_once(server.address(), deadline);
  std::string sent(reinterpret_cast<const char*>(data), size);
  const std::string mark =
      store_protocol::encode_length(static_cast<uint32_t>(kTrusted.size())) + kTrusted;
  if (sent.rfind(mark, 0) == 0) {
    fuzz::expect(
        store_protocol::shake_hands(stranger, "run", deadline) ==
            store_protocol::Handshake::ok,
        "who knows the token comes in");
    sent.erase(0, mark.size());
  }
  stranger.send_all(sent.data(), sent.size(), deadline);
  // Its answer comes after the server has processed the untrusted bytes.
  StoreClient client(server.address(), kLong, "run");
  client.set("alive", "yes");
  fuzz::expect(client.get("alive", kLong) == "yes", "others are served");
  std::string answers = received(stranger);
  const bool all = answers.size() < kMostAnswers;
  const size_t num_answers = fuzz::take_frames(answers).size();
  fuzz::expect(num_answers <= fuzz::take_frames(sent).size(), "no answer unasked");
  fuzz::expect(!all || answers.empty(), "answers are whole");
  return 0;
}
