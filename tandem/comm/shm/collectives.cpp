#include "tandem/comm/shm/collectives.h"

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "tandem/base/error.h"

namespace tandem {

namespace {

using Block = ShmRankBlock;

// Number of rounds that a rank may fill before it takes the first of them. With two
// rounds, a rank can write a chunk while other ranks read the previous chunk.
constexpr int64_t kRoundsAhead = 2;

uint64_t pack(char name, int reduction, int root, at::ScalarType dtype) {
  return static_cast<uint64_t>(name) << 56 |
         static_cast<uint64_t>(static_cast<uint8_t>(reduction)) << 48 |
         static_cast<uint64_t>(static_cast<uint8_t>(dtype)) << 40 |
         static_cast<uint64_t>(static_cast<uint32_t>(root));
}

const char* name_of(char letter) {
  switch (letter) {
    case 'r':
      return "all_reduce";
    case 'b':
      return "broadcast";
    case 'c':
      return "reduce_scatter";
    case 'g':
      return "all_gather";
    case 's':
      return "scatter";
    default:
      return "gather";
  }
}

std::string describe_call(const ShmAnnouncement& call) {
  const auto reduction = static_cast<int8_t>(call.signature >> 48);
  const auto root = static_cast<int32_t>(call.signature);
  const auto dtype = static_cast<at::ScalarType>(call.signature >> 40 & 0xff);
  std::string text = name_of(static_cast<char>(call.signature >> 56));
  if (reduction >= 0) {
    constexpr const char* kReductions[] = {" sum", " min", " max"};
    text += kReductions[reduction];
  }
  if (root >= 0) {
    text += " from or to rank " + std::to_string(root);
  }
  return text + " of " + std::to_string(call.numel) + " " + c10::toString(dtype);
}

}  // namespace

bool ShmOperation::test() {
  return group_.test(*this);
}

void ShmOperation::wait(std::chrono::milliseconds timeout) {
  group_.wait(*this, timeout);
}

void ShmOperation::on_end(std::function<void()> then) {
  then_ = std::move(then);
  if (ended_) {
    then_();
  }
}

ShmCollectives::ShmCollectives(ShmGroup group) : group_(std::move(group)) {
  for (int rank = 0; rank < size(); ++rank) {
    blocks_.push_back(&group_.region->block(rank));
  }
  group_.family->add(*this);
}

ShmCollectives::~ShmCollectives() {
  group_.family->remove(*this);
  // Reports that this rank leaves, for ranks that wait for it.
  group_.region->leave();
  group_.family->ring(group_.family_ranks);
}

WorkPtr ShmCollectives::start(std::shared_ptr<ShmOperation> operation) {
  operation->number_ = next_operation_++;
  queue_.push_back(operation);
  progress();
  return operation;
}

bool ShmCollectives::progress() {
  if (queue_.empty() || !error_.empty()) {
    return false;
  }
  bool moved = false;
  try {
    while (num_announced_ < queue_.size() && announce(*queue_[num_announced_])) {
      ++num_announced_;
      moved = true;
    }
    while (!queue_.empty() && advance(*queue_.front())) {
      moved = true;
    }
  } catch (const std::exception& error) {
    error_ = first_line(error);
  }
  if (wrote_) {
    wrote_ = false;
    group_.family->ring(group_.family_ranks);
  }
  return moved;
}

bool ShmCollectives::test(const ShmOperation& operation) {
  group_.family->progress();
  return operation.ended_ || !error_.empty();
}

void ShmCollectives::wait(
    const ShmOperation& operation, std::chrono::milliseconds timeout) {
  const auto limit = timeout.count() > 0 ? timeout : group_.timeout;
  const auto awake = [&](bool late) {
    if (late) {
      const int awaited = awaited_rank(operation);
      throw std::runtime_error(
          "no answer within " + std::to_string(limit.count()) + " ms" +
          (awaited < 0 ? "" : "; waited for rank " + std::to_string(awaited)));
    }
    look_for_lost_ranks(operation);
  };
  group_.family->wait(
      [&] { return operation.ended_ || !error_.empty(); }, limit, awake);
  if (!operation.ended_) {
    throw std::runtime_error(error_);
  }
}

bool ShmCollectives::is_small(const ShmOperation& operation) const {
  return operation.bytes_at_once() <=
         static_cast<int64_t>(ShmAnnouncement::kPayloadBytes);
}

bool ShmCollectives::announce(ShmOperation& operation) {
  const uint64_t number = operation.number_;
  if (number >= operations_done_ + Block::kAnnouncements) {
    operations_done_ = number;
    for (const auto* block : blocks_) {
      operations_done_ = std::min(operations_done_, block->operations_done.load());
    }
    if (number >= operations_done_ + Block::kAnnouncements) {
      return false;
    }
  }
  auto& mine = block(rank()).announcements[number % Block::kAnnouncements];
  const auto& call = operation.call_;
  mine.signature = pack(call.name, call.reduction, call.root, call.dtype);
  mine.numel = static_cast<uint64_t>(call.numel);
  mine.segment = 0;
  if (is_small(operation)) {
    operation.fill(0, mine.payload);
  } else if (const at::Tensor* tensor = operation.in_place()) {
    const auto place =
        group_.family->segments().find(tensor->data_ptr(), tensor->nbytes());
    mine.segment = place ? place->segment : 0;
    mine.offset = place ? place->offset : 0;
  }
  mine.sequence.store(number + 1, std::memory_order_release);
  operation.announced_ = true;
  wrote_ = true;
  return true;
}

bool ShmCollectives::all_announced(ShmOperation& operation) {
  const auto slot = operation.number_ % Block::kAnnouncements;
  while (operation.arrived_ < size()) {
    const auto& theirs = block(operation.arrived_).announcements[slot];
    if (theirs.sequence.load(std::memory_order_acquire) != operation.number_ + 1) {
      return false;
    }
    if (++operation.arrived_ == size()) {
      check_same_call(operation);
    }
  }
  return true;
}

void ShmCollectives::check_same_call(const ShmOperation& operation) const {
  const auto slot = operation.number_ % Block::kAnnouncements;
  const auto& first = block(0).announcements[slot];
  for (int other = 1; other < size(); ++other) {
    const auto& theirs = block(other).announcements[slot];
    if (theirs.signature != first.signature || theirs.numel != first.numel) {
      throw std::runtime_error(
          "rank 0 called " + describe_call(first) + ", rank " + std::to_string(other) +
          " called " + describe_call(theirs));
    }
  }
}

// Advances an operation, and removes it from the queue if it has ended. Returns whether
// the operation has advanced.
bool ShmCollectives::advance(ShmOperation& operation) {
  if (!operation.announced_) {
    return false;
  }
  const bool all_here = all_announced(operation);
  if (is_small(operation)) {
    if (all_here) {
      take_small(operation);
    }
    return all_here;
  }
  bool moved = false;
  while (start_rounds(operation, all_here)) {
    const bool filled = fill_next(operation);
    const bool taken = all_here && take_next(operation);
    if (operation.taken_ == operation.rounds()) {
      end(operation);
      return true;
    }
    if (!filled && !taken) {
      break;
    }
    moved = true;
  }
  return moved;
}

void ShmCollectives::take_small(ShmOperation& operation) {
  const auto slot = operation.number_ % Block::kAnnouncements;
  PerRank<const char> payloads;
  for (const auto* block : blocks_) {
    payloads.push_back(block->announcements[slot].payload);
  }
  operation.take(0, payloads);
  end(operation);
}

// Returns whether this rank may start the rounds of an operation. If any rank's tensor
// is not in shared memory, the operation uses chunks. A rank with such a tensor
// therefore starts immediately. The other ranks wait until all ranks have announced the
// operation.
bool ShmCollectives::start_rounds(ShmOperation& operation, bool all_here) {
  if (operation.started_) {
    return true;
  }
  const auto slot = operation.number_ % Block::kAnnouncements;
  const bool shared = block(rank()).announcements[slot].segment != 0;
  if (shared && !all_here) {
    return false;
  }
  operation.started_ = true;
  if (shared) {
    const auto places = shared_places(operation);
    if (!places.empty()) {
      operation.use_shared(places);
    }
  }
  return true;
}

// Returns the addresses at which this process maps the ranks' tensors, or none if a
// rank's tensor is not in shared memory.
PerRank<char> ShmCollectives::shared_places(const ShmOperation& operation) const {
  const auto slot = operation.number_ % Block::kAnnouncements;
  PerRank<char> places;
  for (int other = 0; other < size(); ++other) {
    const auto& theirs = block(other).announcements[slot];
    if (theirs.segment == 0) {
      return {};
    }
  }
  for (int other = 0; other < size(); ++other) {
    const auto& theirs = block(other).announcements[slot];
    places.push_back(
        other == rank() ? static_cast<char*>(operation.in_place()->data_ptr())
                        : group_.family->segments().open(
                              group_.family_ranks[static_cast<size_t>(other)],
                              {theirs.segment, theirs.offset}));
  }
  return places;
}

bool ShmCollectives::fill_next(ShmOperation& operation) {
  const int64_t ahead = operation.filled_ - operation.taken_;
  if (operation.filled_ == operation.rounds() ||
      ahead >= (operation.runs_ahead() ? kRoundsAhead : 1)) {
    return false;
  }
  const uint64_t chunk = next_chunk_ + static_cast<uint64_t>(operation.filled_);
  if (chunk >= chunks_done_ + Block::kChunks) {
    chunks_done_ = chunk;
    for (const auto* block : blocks_) {
      chunks_done_ = std::min(chunks_done_, block->chunks_done.load());
    }
    if (chunk >= chunks_done_ + Block::kChunks) {
      return false;
    }
  }
  auto& mine = block(rank());
  operation.fill(operation.filled_++, mine.chunks[chunk % Block::kChunks]);
  mine.chunk_flags[chunk % Block::kChunks].sequence.store(
      chunk + 1, std::memory_order_release);
  wrote_ = true;
  return true;
}

bool ShmCollectives::take_next(ShmOperation& operation) {
  if (operation.taken_ == operation.filled_) {
    return false;
  }
  const uint64_t chunk = next_chunk_ + static_cast<uint64_t>(operation.taken_);
  const auto slot = chunk % Block::kChunks;
  PerRank<const char> payloads;
  for (const auto* block : blocks_) {
    const auto& flag = block->chunk_flags[slot].sequence;
    if (flag.load(std::memory_order_acquire) != chunk + 1) {
      return false;
    }
    payloads.push_back(block->chunks[slot]);
  }
  operation.take(operation.taken_++, payloads);
  block(rank()).chunks_done.store(chunk + 1, std::memory_order_release);
  wrote_ = true;
  return true;
}

void ShmCollectives::end(ShmOperation& operation) {
  operation.ended_ = true;
  if (operation.then_) {
    operation.then_();
  }
  if (!is_small(operation)) {
    next_chunk_ += static_cast<uint64_t>(operation.rounds());
  }
  block(rank()).operations_done.store(operation.number_ + 1, std::memory_order_release);
  wrote_ = true;
  --num_announced_;
  queue_.pop_front();
}

// Returns the rank on which the first operation in the queue waits. Returns -1 if the
// data of all ranks have arrived, and the operation waits only for space.
int ShmCollectives::awaited_rank(const ShmOperation& operation) const {
  const auto& front = queue_.empty() ? operation : *queue_.front();
  const auto slot = front.number_ % Block::kAnnouncements;
  const uint64_t chunk = next_chunk_ + static_cast<uint64_t>(front.taken_);
  for (int other = 0; other < size(); ++other) {
    const auto& theirs = block(other);
    const bool announced = theirs.announcements[slot].sequence == front.number_ + 1;
    const bool filled =
        is_small(front) ||
        theirs.chunk_flags[chunk % Block::kChunks].sequence == chunk + 1;
    if (other != rank() && (!announced || !filled)) {
      return other;
    }
  }
  return -1;
}

std::optional<LostRank> ShmGroup::find_lost(int member, bool count_left) const {
  const int found = family_ranks[static_cast<size_t>(member)];
  if (family->region().died(found)) {
    const auto first = std::find(
        family_ranks.begin(), family_ranks.end(), family->region().first_lost(found));
    const bool is_here = first != family_ranks.end();
    return LostRank{
        is_here ? static_cast<int>(first - family_ranks.begin()) : member, true};
  }
  if (count_left && region->block(member).state.load() == Block::left) {
    return LostRank{member, false};
  }
  return std::nullopt;
}

void ShmCollectives::look_for_lost_ranks(const ShmOperation& operation) {
  std::optional<LostRank> lost;
  for (int other = 0; !lost && other < size(); ++other) {
    lost = group_.find_lost(other, false);
  }
  if (const int awaited = awaited_rank(operation); !lost && awaited >= 0) {
    lost = group_.find_lost(awaited, true);
  }
  if (!lost) {
    return;
  }
  // The data that the rank wrote before it ended may be sufficient.
  progress();
  if (!operation.ended_ && error_.empty()) {
    error_ = lost->text();
    failed_rank_ = lost->rank;
  }
}

}  // namespace tandem
