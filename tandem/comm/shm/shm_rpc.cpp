#include "tandem/comm/shm/shm_rpc.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "tandem/base/deadline.h"
#include "tandem/base/error.h"
#include "tandem/comm/shm/messages.h"

namespace tandem {

namespace {

// Tags that distinguish requests from answers between two ranks.
constexpr int kRequestTag = 0;
constexpr int kAnswerTag = 1;

// Largest tensor that is sent through the ring, in bytes.
constexpr size_t kInRing = 4096;

// Maximum time for which reply() waits until data that do not fit into the ring are
// sent. Without this wait, other work of the caller would delay the data.
constexpr std::chrono::milliseconds kPushOn{20};

using Location = ShmSegments::Location;

at::Tensor make_bytes(int64_t count) {
  return at::empty({count}, at::kChar);
}

// Description of a message, which is sent before the tensors. It contains the header's
// length and text, and for each tensor its location, dtype, number of dimensions and
// sizes. Segment 0 means that the tensor's bytes follow.
class Description {
 public:
  Description(const RpcMessage& message, const std::vector<Location>& places) {
    add(static_cast<int64_t>(message.header.size()));
    text_ += message.header;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto& tensor = message.tensors[i];
      add(static_cast<int64_t>(places[i].segment));
      add(static_cast<int64_t>(places[i].offset));
      add(static_cast<int64_t>(tensor.scalar_type()));
      add(tensor.dim());
      for (const int64_t size : tensor.sizes()) {
        add(size);
      }
    }
  }

  explicit Description(const at::Tensor& bytes)
      : text_(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()) {}

  at::Tensor bytes() const {
    auto tensor = make_bytes(static_cast<int64_t>(text_.size()));
    copy_bytes(tensor.data_ptr(), text_.data(), text_.size());
    return tensor;
  }

  // Returns the message with uninitialized tensors. Writes the locations of their
  // values to `places`.
  RpcMessage message(std::vector<Location>& places) const {
    RpcMessage message;
    size_t at = 0;
    const auto header = static_cast<size_t>(take(at));
    message.header = text_.substr(at, header);
    at += header;
    while (at < text_.size()) {
      Location place;
      place.segment = static_cast<uint64_t>(take(at));
      place.offset = static_cast<uint64_t>(take(at));
      places.push_back(place);
      const auto dtype = static_cast<at::ScalarType>(take(at));
      std::vector<int64_t> sizes(static_cast<size_t>(take(at)));
      for (auto& size : sizes) {
        size = take(at);
      }
      message.tensors.push_back(at::empty(sizes, dtype));
    }
    return message;
  }

 private:
  void add(int64_t number) {
    text_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }

  int64_t take(size_t& at) const {
    int64_t number = 0;
    TANDEM_CHECK(at + sizeof(number) <= text_.size(), "the message is truncated");
    std::memcpy(&number, text_.data() + at, sizeof(number));
    at += sizeof(number);
    return number;
  }

  std::string text_;
};

// Shared memory for the tensors of one message at a time. When the next message is
// written, the receiver has copied the previous message, because it has answered or has
// sent another request.
class Room {
 public:
  static size_t aligned(size_t bytes) {
    return (bytes + 63) / 64 * 64;
  }

  // Allocates memory for tensors of `bytes` bytes in total, including alignment. If the
  // allocation fails, `memory_` stays undefined.
  void begin(ShmSegments& segments, size_t bytes) {
    used_ = 0;
    if (!memory_.defined() || memory_.nbytes() < bytes) {
      memory_.reset();
      memory_ = segments.allocate(static_cast<int64_t>(bytes), at::kChar);
    }
  }

  // Copies a tensor and returns the copy's address, or null if the tensor does not fit.
  void* add(const at::Tensor& tensor) {
    if (!memory_.defined() || used_ + tensor.nbytes() > memory_.nbytes()) {
      return nullptr;
    }
    char* to = static_cast<char*>(memory_.data_ptr()) + used_;
    copy_bytes(to, tensor.data_ptr(), tensor.nbytes());
    used_ += aligned(tensor.nbytes());
    return to;
  }

 private:
  at::Tensor memory_;
  size_t used_ = 0;
};

// Receives messages of one kind from one peer.
class Incoming {
 public:
  Incoming(const ShmGroup& group, ShmMessages& messages, int peer, int tag)
      : segments_(group.family->segments()),
        family_rank_(group.family_ranks[static_cast<size_t>(peer)]),
        messages_(messages),
        peer_(peer),
        tag_(tag) {
    expect_frame();
  }

  // Advances receiving. Returns whether a message is complete; take() then returns that
  // message.
  bool complete() {
    while (stage_ != Stage::complete && all_here()) {
      next_stage();
    }
    return stage_ == Stage::complete;
  }

  RpcMessage take() {
    RpcMessage message = std::move(message_);
    expect_frame();
    return message;
  }

 private:
  enum class Stage { frame, description, tensors, complete };

  bool all_here() {
    while (!awaited_.empty() && awaited_.back()->test()) {
      // Throws if the size or dtype is not the expected one.
      awaited_.back()->wait();
      awaited_.pop_back();
    }
    return awaited_.empty();
  }

  void next_stage() {
    if (stage_ == Stage::frame) {
      stage_ = Stage::description;
      bytes_ = make_bytes(bytes_.data_ptr<int64_t>()[0]);
      expect(bytes_);
    } else if (stage_ == Stage::description) {
      stage_ = Stage::tensors;
      std::vector<Location> places;
      message_ = Description(bytes_).message(places);
      for (size_t i = 0; i < places.size(); ++i) {
        fill(message_.tensors[i], places[i]);
      }
    } else {
      stage_ = Stage::complete;
    }
  }

  void fill(const at::Tensor& tensor, const Location& place) {
    if (place.segment == 0) {
      expect(tensor);
    } else {
      copy_bytes(
          tensor.data_ptr(), segments_.open(family_rank_, place), tensor.nbytes());
    }
  }

  void expect_frame() {
    stage_ = Stage::frame;
    bytes_ = at::empty({1}, at::kLong);
    expect(bytes_);
  }

  void expect(const at::Tensor& tensor) {
    awaited_.push_back(messages_.recv(tensor, peer_, tag_));
  }

  ShmSegments& segments_;
  int family_rank_;
  ShmMessages& messages_;
  int peer_;
  int tag_;
  Stage stage_ = Stage::frame;
  // First the frame, which contains the length of the description; then the
  // description.
  at::Tensor bytes_;
  RpcMessage message_;
  std::vector<WorkPtr> awaited_;
};

class ShmRpc : public Rpc {
 public:
  explicit ShmRpc(const ShmGroup& group) : group_(group), messages_(group) {
    for (int peer = 0; peer < group_.size(); ++peer) {
      if (peer != group_.rank) {
        peers_.push_back(
            {peer,
             Incoming(group_, messages_, peer, kRequestTag),
             Incoming(group_, messages_, peer, kAnswerTag),
             {},
             {}});
      }
    }
  }

  RpcMessage call(int peer, RpcMessage request) override {
    auto& there = at(peer);
    // The tensors do not change until the answer arrives, so tensors in shared memory
    // are not copied.
    std::vector<Location> places;
    for (auto& tensor : request.tensors) {
      tensor = tensor.contiguous();
      places.push_back(is_small(tensor) ? Location{} : find(tensor));
    }
    put(request, places, there.request_room);
    // `sent` needs no wait(), because the request was sent if its answer has arrived.
    const auto sent = send(peer, kRequestTag, request, places);
    wait_until(
        [&] { return there.answers.complete(); },
        "the answer of rank " + std::to_string(peer), peer);
    return there.answers.take();
  }

  RpcRequest next() override {
    Peer* ready = nullptr;
    wait_until(
        [&] { return (ready = first_ready()) != nullptr; }, "a request of another rank",
        -1);
    RpcRequest request;
    request.from = ready->rank;
    request.message = ready->requests.take();
    request.reply = [this, peer = ready->rank](RpcMessage answer) {
      reply(peer, std::move(answer));
    };
    return request;
  }

 private:
  struct Peer {
    int rank;
    Incoming requests;
    Incoming answers;
    Room request_room;
    Room answer_room;
  };

  Peer& at(int rank) {
    return peers_[static_cast<size_t>(rank < group_.rank ? rank : rank - 1)];
  }

  ShmSegments& segments() {
    return group_.family->segments();
  }

  static bool is_small(const at::Tensor& tensor) {
    return tensor.nbytes() <= kInRing;
  }

  // Returns segment 0 if other ranks cannot access the tensor.
  Location find(const at::Tensor& tensor) {
    return segments().find(tensor.data_ptr(), tensor.nbytes()).value_or(Location{});
  }

  // Copies large tensors that are not in shared memory to `room`, and sets their
  // `places`.
  void put(const RpcMessage& message, std::vector<Location>& places, Room& room) {
    const auto wanted = [&](size_t i) {
      return places[i].segment == 0 && !is_small(message.tensors[i]);
    };
    size_t bytes = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      bytes += wanted(i) ? Room::aligned(message.tensors[i].nbytes()) : 0;
    }
    if (bytes == 0) {
      return;
    }
    room.begin(segments(), bytes);
    for (size_t i = 0; i < places.size(); ++i) {
      const auto& tensor = message.tensors[i];
      if (const void* copy = wanted(i) ? room.add(tensor) : nullptr; copy != nullptr) {
        places[i] = segments().find(copy, tensor.nbytes()).value();
      }
    }
  }

  // Returns a peer with a complete request, or null. It checks the peers round-robin,
  // so that a rank that sends many requests does not block the others.
  Peer* first_ready() {
    for (size_t i = 0; i < peers_.size(); ++i) {
      auto& peer = peers_[(next_ + i) % peers_.size()];
      if (peer.requests.complete()) {
        next_ = (next_ + i + 1) % peers_.size();
        return &peer;
      }
    }
    return nullptr;
  }

  // Sends a message and returns the Work of its last part. The send queue keeps the
  // tensors alive.
  [[nodiscard]] WorkPtr send(
      int peer, int tag, const RpcMessage& message,
      const std::vector<Location>& places) {
    const auto description = Description(message, places).bytes();
    const auto frame = at::empty({1}, at::kLong).fill_(description.numel());
    auto last = messages_.send(frame, peer, tag);
    last = messages_.send(description, peer, tag);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].segment == 0) {
        last = messages_.send(message.tensors[i], peer, tag);
      }
    }
    return last;
  }

  void reply(int peer, RpcMessage answer) {
    for (auto& tensor : answer.tensors) {
      tensor = tensor.contiguous();
    }
    std::vector<Location> places(answer.tensors.size());
    put(answer, places, at(peer).answer_room);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].segment == 0) {
        answer.tensors[i] = answer.tensors[i].clone();
      }
    }
    const auto sent = send(peer, kAnswerTag, answer, places);
    const Deadline end(kPushOn);
    group_.family->wait(
        [&] { return sent->test() || end.passed(); }, kPushOn, [](bool) {});
  }

  // Throws CommError at the group's timeout, or if `peer` (-1: any rank) has ended.
  void wait_until(
      const std::function<bool()>& ready, const std::string& what, int peer) {
    group_.family->wait(ready, group_.timeout, [&](bool late) {
      for (const auto& other : peers_) {
        const auto lost = group_.find_lost(other.rank, peer < 0 || peer == other.rank);
        // The data that the rank sent before it ended may be sufficient.
        if (lost && !ready()) {
          throw CommError(what, lost->text(), lost->rank);
        }
      }
      if (late) {
        throw CommError(
            what, "none within " + std::to_string(group_.timeout.count()) + " ms");
      }
    });
  }

  ShmGroup group_;
  ShmMessages messages_;
  // All other ranks, in order.
  std::vector<Peer> peers_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Rpc> make_shm_rpc(const ShmGroup& group) {
  return std::make_unique<ShmRpc>(group);
}

}  // namespace tandem
