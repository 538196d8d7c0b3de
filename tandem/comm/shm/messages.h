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

/// Point-to-point messages of a group, each pair of ranks through a ring of its own.
/// A message that comes before it is wanted is kept. A send has ended when all of it is
/// in the ring or beyond. In the ring a message is its header and then its bytes; the
/// end of the ring may cut either. ShmRing in region.h describes the order of memory.
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

  /// The rank that died or left, as far as is known; else -1.
  int failed_rank() const {
    return failed_rank_;
  }

 private:
  class Message;

  // Lies in front of a message's bytes in the ring.
  struct Header {
    int64_t tag = 0;
    int64_t dtype = 0;
    int64_t bytes = 0;
  };

  // A message that comes in. Its bytes go into the tensor that waits for it, or, if
  // there is none, into `kept`.
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
    // The messages that are kept and, at the end, the one that is coming in.
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
