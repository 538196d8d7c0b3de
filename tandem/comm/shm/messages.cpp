#include "tandem/comm/shm/messages.h"

#include <algorithm>
#include <stdexcept>

namespace tandem {

namespace {

int64_t room_in(const ShmRing& ring) {
  const uint64_t used = ring.written.load(std::memory_order_relaxed) -
                        ring.read.load(std::memory_order_acquire);
  return static_cast<int64_t>(ShmRing::kBytes - used);
}

int64_t bytes_in(const ShmRing& ring) {
  return static_cast<int64_t>(
      ring.written.load(std::memory_order_acquire) -
      ring.read.load(std::memory_order_relaxed));
}

// Writes bytes to a ring. Copies two pieces if the bytes wrap around the end of the
// ring.
void write_ring(ShmRing& ring, const void* from, int64_t bytes) {
  const uint64_t at = ring.written.load(std::memory_order_relaxed);
  const size_t place = at % ShmRing::kBytes;
  const size_t first = std::min(static_cast<size_t>(bytes), ShmRing::kBytes - place);
  const char* source = static_cast<const char*>(from);
  copy_bytes(ring.data + place, source, first);
  copy_bytes(ring.data, source + first, static_cast<size_t>(bytes) - first);
  ring.written.store(at + static_cast<uint64_t>(bytes), std::memory_order_release);
}

void read_ring(ShmRing& ring, void* to, int64_t bytes) {
  const uint64_t at = ring.read.load(std::memory_order_relaxed);
  const size_t place = at % ShmRing::kBytes;
  const size_t first = std::min(static_cast<size_t>(bytes), ShmRing::kBytes - place);
  char* target = static_cast<char*>(to);
  copy_bytes(target, ring.data + place, first);
  copy_bytes(target + first, ring.data, static_cast<size_t>(bytes) - first);
  ring.read.store(at + static_cast<uint64_t>(bytes), std::memory_order_release);
}

}  // namespace

class ShmMessages::Message : public Work {
 public:
  Message(ShmMessages& group, const at::Tensor& tensor, int other, int tag)
      : messages(group),
        peer(other),
        header{
            tag, static_cast<int64_t>(tensor.scalar_type()),
            static_cast<int64_t>(tensor.nbytes())},
        memory(static_cast<char*>(tensor.data_ptr())),
        tensor_(tensor) {}

  bool test() override {
    messages.group_.family->progress();
    return ended;
  }

  void wait(std::chrono::milliseconds timeout) override {
    messages.wait(*this, timeout);
  }

  void on_end(std::function<void()> call) override {
    then = std::move(call);
    if (ended) {
      then();
    }
  }

  void end() {
    ended = true;
    if (then) {
      then();
    }
  }

  ShmMessages& messages;
  int peer;
  Header header;
  char* memory;
  // Number of bytes of header and tensor that were written to the ring.
  int64_t sent = 0;
  bool ended = false;
  // Function to call at the end; may be empty.
  std::function<void()> then;
  std::string error;

 private:
  at::Tensor tensor_;
};

ShmMessages::ShmMessages(ShmGroup group)
    : group_(std::move(group)), peers_(static_cast<size_t>(group_.size())) {
  group_.family->add(*this);
}

ShmMessages::~ShmMessages() {
  group_.family->remove(*this);
}

WorkPtr ShmMessages::send(const at::Tensor& tensor, int peer, int tag) {
  auto message = std::make_shared<Message>(*this, tensor, peer, tag);
  peers_[static_cast<size_t>(peer)].to_send.push_back(message);
  ++num_pending_;
  progress();
  return message;
}

WorkPtr ShmMessages::recv(const at::Tensor& tensor, int peer, int tag) {
  auto message = std::make_shared<Message>(*this, tensor, peer, tag);
  auto& from = peers_[static_cast<size_t>(peer)];
  from.wanted.push_back(message);
  ++num_pending_;
  match(from);
  progress();
  return message;
}

bool ShmMessages::progress() {
  if (num_pending_ == 0) {
    return false;
  }
  bool moved = false;
  for (int peer = 0; peer < group_.size(); ++peer) {
    moved = push(peer) || moved;
    moved = pull(peer) || moved;
  }
  if (moved) {
    group_.family->ring(group_.family_ranks);
  }
  return moved;
}

bool ShmMessages::push(int peer) {
  constexpr auto kHeader = static_cast<int64_t>(sizeof(Header));
  auto& queue = peers_[static_cast<size_t>(peer)].to_send;
  ShmRing& ring = group_.region->ring(group_.rank, peer);
  bool moved = false;
  while (!queue.empty()) {
    auto& message = *queue.front();
    if (message.sent == 0) {
      if (room_in(ring) < kHeader) {
        return moved;
      }
      write_ring(ring, &message.header, kHeader);
      message.sent = kHeader;
    }
    const int64_t left = kHeader + message.header.bytes - message.sent;
    const int64_t some = std::min(left, room_in(ring));
    write_ring(ring, message.memory + (message.sent - kHeader), some);
    message.sent += some;
    moved = moved || some > 0;
    if (some < left) {
      return moved;
    }
    message.end();
    moved = true;
    --num_pending_;
    queue.pop_front();
  }
  return moved;
}

// Reads arriving messages from the ring, but only while a recv() waits. Other data stay
// in the ring, so that a sender that is far ahead fills the ring and then waits.
bool ShmMessages::pull(int from) {
  auto& peer = peers_[static_cast<size_t>(from)];
  ShmRing& ring = group_.region->ring(from, group_.rank);
  bool moved = false;
  while (!peer.wanted.empty()) {
    if (peer.arrivals.empty() || peer.arrivals.back().complete()) {
      if (!begin_arrival(from)) {
        return moved;
      }
    }
    auto& arrival = peer.arrivals.back();
    const int64_t some = std::min(arrival.header.bytes - arrival.got, bytes_in(ring));
    char* to = arrival.wanted_by ? arrival.wanted_by->memory : arrival.kept.data();
    read_ring(ring, to + arrival.got, some);
    arrival.got += some;
    moved = moved || some > 0;
    if (!arrival.complete()) {
      return moved;
    }
    moved = true;
    match(peer);
  }
  return moved;
}

bool ShmMessages::begin_arrival(int from) {
  ShmRing& ring = group_.region->ring(from, group_.rank);
  if (bytes_in(ring) < static_cast<int64_t>(sizeof(Header))) {
    return false;
  }
  auto& peer = peers_[static_cast<size_t>(from)];
  Arrival arrival;
  read_ring(ring, &arrival.header, sizeof(Header));
  // There is no stored message with this tag if a recv() waits for the tag. Therefore,
  // the first such recv() waits for this message.
  const auto wanted = std::find_if(
      peer.wanted.begin(), peer.wanted.end(),
      [&](const auto& message) { return message->header.tag == arrival.header.tag; });
  if (wanted != peer.wanted.end() && (*wanted)->header.bytes == arrival.header.bytes) {
    arrival.wanted_by = *wanted;
    peer.wanted.splice(peer.wanted.begin(), peer.wanted, wanted);
  } else {
    arrival.kept.resize(static_cast<size_t>(arrival.header.bytes));
  }
  peer.arrivals.push_back(std::move(arrival));
  return true;
}

// Delivers complete arrivals to the calls of recv() that wait for them. Messages with
// the same tag are delivered in the order of their arrival.
void ShmMessages::match(Peer& peer) {
  for (auto message = peer.wanted.begin(); message != peer.wanted.end();) {
    const auto arrival = std::find_if(
        peer.arrivals.begin(), peer.arrivals.end(), [&](const Arrival& one) {
          return one.wanted_by ? one.wanted_by == *message
                               : one.header.tag == (*message)->header.tag;
        });
    if (arrival == peer.arrivals.end() || !arrival->complete()) {
      ++message;
      continue;
    }
    arrival->wanted_by = *message;
    deliver(*arrival);
    peer.arrivals.erase(arrival);
    message = peer.wanted.erase(message);
    --num_pending_;
  }
}

void ShmMessages::deliver(Arrival& arrival) {
  auto& message = *arrival.wanted_by;
  const bool same = message.header.bytes == arrival.header.bytes &&
                    message.header.dtype == arrival.header.dtype;
  if (!same) {
    message.error = "expected " + std::to_string(message.header.bytes) + " bytes of " +
                    c10::toString(static_cast<at::ScalarType>(message.header.dtype)) +
                    ", got " + std::to_string(arrival.header.bytes) + " of " +
                    c10::toString(static_cast<at::ScalarType>(arrival.header.dtype)) +
                    "; sizes or dtypes differ";
  } else if (!arrival.kept.empty()) {
    copy_bytes(message.memory, arrival.kept.data(), arrival.kept.size());
  }
  message.end();
}

void ShmMessages::wait(const Message& message, std::chrono::milliseconds timeout) {
  const auto limit = timeout.count() > 0 ? timeout : group_.timeout;
  const auto awake = [&](bool late) {
    if (late) {
      throw std::runtime_error(
          "no answer within " + std::to_string(limit.count()) +
          " ms; waited for rank " + std::to_string(message.peer));
    }
    look_for_lost_rank(message);
  };
  group_.family->wait([&] { return message.ended; }, limit, awake);
  if (!message.error.empty()) {
    throw std::runtime_error(message.error);
  }
}

void ShmMessages::look_for_lost_rank(const Message& message) {
  const auto lost = group_.find_lost(message.peer, true);
  if (!lost) {
    return;
  }
  // The data that the rank sent before it ended may be sufficient.
  progress();
  if (!message.ended) {
    failed_rank_ = lost->rank;
    throw std::runtime_error(lost->text());
  }
}

}  // namespace tandem
