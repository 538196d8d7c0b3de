#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/comm/shm/collectives.h"

namespace tandem {

/// Point-to-point messages of a group, with a separate ring for each sender and
/// receiver.
///
/// A rank reads a ring only while a recv() from the sender is pending. Messages that
/// then arrive for later calls of recv() are stored. A send has ended when the whole
/// message is in the ring or was received. In the ring, a message consists of its
/// header and then its bytes. Both may wrap around the end of the ring. ShmRing in
/// region.h describes the memory order.
///
///   data  | rest of B  | free              | header A | bytes of A | header B | B |
///                      ^ written % kBytes  ^ read % kBytes
class ShmMessages : public ShmProgress {
 public:
  explicit ShmMessages(ShmGroup group);
  ~ShmMessages() override;
  ShmMessages(const ShmMessages&) = delete;
  ShmMessages& operator=(const ShmMessages&) = delete;

  [[nodiscard]] WorkPtr send(const at::Tensor& tensor, int peer, int tag);
  [[nodiscard]] WorkPtr recv(const at::Tensor& tensor, int peer, int tag);

  bool progress() override;

  /// Returns a rank that died or left, -1 if none is known.
  int failed_rank() const {
    return failed_rank_;
  }

 private:
  class Message;

  // Header that precedes a message's bytes in the ring.
  struct Header {
    int64_t tag = 0;
    int64_t dtype = 0;
    int64_t bytes = 0;
  };

  // An arriving message. Its bytes are written to the tensor of its recv(), or to
  // `kept` if recv() was not yet called.
  struct Arrival {
    Header header;
    int64_t got = 0;
    std::shared_ptr<Message> wanted_by;
    std::vector<char> kept;

    bool complete() const {
      return got == header.bytes;
    }
  };

  struct Peer {
    std::deque<std::shared_ptr<Message>> to_send;
    std::list<std::shared_ptr<Message>> wanted;
    // Stored messages, followed by the message that is still arriving.
    std::list<Arrival> arrivals;
  };

  bool push(int peer);
  bool pull(int peer);
  bool begin_arrival(int peer);
  void match(Peer& peer);
  static void deliver(Arrival& arrival);
  void wait(const Message& message, std::chrono::milliseconds timeout);
  void look_for_lost_rank(const Message& message);

  ShmGroup group_;
  std::vector<Peer> peers_;
  int64_t num_pending_ = 0;
  int failed_rank_ = -1;
};

}  // namespace tandem
