#include "tandem/comm/nccl/nccl_group.h"

#include <stdexcept>
#include <utility>

#include "tandem/base/log.h"

namespace tandem {

namespace {

using Stage = NcclFlight::Stage;

// For destructors: what is not given back then is lost until the process ends.
template <typename Action>
void try_to(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    log_debug(std::string("[comm] nccl: ") + error.what());
  }
}

}  // namespace

DeviceEvent::DeviceEvent(std::shared_ptr<const DeviceStreams> streams)
    : streams_(std::move(streams)), event_(streams_->create_event()) {}

DeviceEvent::~DeviceEvent() {
  try_to([&] { streams_->destroy_event(event_); });
}

NcclGroup::NcclGroup(
    const NcclDevice& device, int rank, int size,
    std::function<std::optional<NcclUniqueId>()> find_id,
    std::chrono::milliseconds ending_timeout)
    : device_(device),
      rank_(rank),
      size_(size),
      find_id_(std::move(find_id)),
      ending_timeout_(ending_timeout),
      stream_(device.streams->create_stream()) {}

NcclGroup::~NcclGroup() {
  abort();
  if (abort_ended_.valid() &&
      abort_ended_.wait_for(abort_deadline_->left()) != std::future_status::ready) {
    log_warning(
        "[comm] nccl: a communicator could not be aborted within " +
        std::to_string(ending_timeout_.count()) + " ms and is left as it is");
    aborting_.detach();
  } else if (aborting_.joinable()) {
    aborting_.join();
  }
  try_to([&] { device_.streams->destroy_stream(stream_); });
}

void NcclGroup::push(std::shared_ptr<NcclFlight> flight) {
  flight->captured = device_.streams->captures();
  device_.streams->record(flight->ready.get(), device_.streams->current_stream());
  flights_.push_back(std::move(flight));
}

void NcclGroup::push_launched(std::shared_ptr<NcclFlight> flight) {
  device_.streams->record(flight->done.get(), device_.streams->current_stream());
  flight->stage = Stage::launched;
  if (!is_last(flight)) {
    flights_.push_back(std::move(flight));
  }
}

void NcclGroup::progress() {
  if (aborted_) {
    return;
  }
  if (!formed_) {
    form();
  }
  // Before what may keep a later one from the stream.
  retire();
  if (!formed_ || !settled()) {
    return;
  }
  for (const auto& flight : flights_) {
    if (flight->stage == Stage::queued) {
      issue(*flight);
    } else if (flight->stage == Stage::issued) {
      launched(*flight);
    }
    if (flight->stage == Stage::issued) {
      break;
    }
  }
}

void NcclGroup::form() {
  if (comm_ == nullptr) {
    const auto id = find_id_();
    if (!id) {
      return;
    }
    device_.streams->use_device();
    NcclConfig config;
    check(
        device_.nccl->comm_init_rank_config(&comm_, size_, *id, rank_, &config),
        "ncclCommInitRankConfig");
  }
  formed_ = settled();
}

// NCCL takes nothing else while a call is in progress, and only then is what the call
// put on the stream there.
bool NcclGroup::settled() {
  NcclResult state = NcclResult::success;
  check(device_.nccl->comm_get_async_error(comm_, &state), "ncclCommGetAsyncError");
  check(state, "NCCL");
  return state == NcclResult::success;
}

void NcclGroup::issue(NcclFlight& flight) {
  device_.streams->wait(stream_, flight.ready.get());
  flight.stage = Stage::issued;
  const auto result = flight.call(comm_, stream_);
  check(result, flight.name.c_str());
  if (result == NcclResult::success) {
    launched(flight);
  }
}

void NcclGroup::launched(NcclFlight& flight) {
  device_.streams->record(flight.done.get(), stream_);
  flight.stage = Stage::launched;
}

void NcclGroup::retire() {
  const auto has_ended = [&](const NcclFlight& flight) {
    return flight.stage == Stage::launched &&
           (flight.captured || device_.streams->query(flight.done.get()));
  };
  while (!flights_.empty() && has_ended(*flights_.front())) {
    flights_.front()->stage = Stage::ended;
    flights_.front()->call = nullptr;
    flights_.pop_front();
  }
}

void NcclGroup::begin_to_finish() {
  check(device_.nccl->comm_finalize(comm_), "ncclCommFinalize");
}

bool NcclGroup::finish() {
  if (comm_ == nullptr) {
    return true;
  }
  if (!settled()) {
    return false;
  }
  check(device_.nccl->comm_destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
  return true;
}

void NcclGroup::abort() {
  aborted_ = true;
  if (comm_ != nullptr) {
    std::packaged_task<void()> task(
        [device = device_, comm = std::exchange(comm_, nullptr)] {
          try_to([&] {
            device.streams->use_device();
            device.nccl->comm_abort(comm);
          });
        });
    abort_ended_ = task.get_future();
    abort_deadline_.emplace(ending_timeout_);
    try_to([&] { aborting_ = std::thread(std::move(task)); });
  }
  for (auto& flight : flights_) {
    flight->stage = Stage::failed;
    flight->call = nullptr;
  }
  flights_.clear();
}

void NcclGroup::check(NcclResult result, const char* call) const {
  if (result == NcclResult::success || result == NcclResult::in_progress) {
    return;
  }
  const std::string said = device_.nccl->get_last_error(comm_);
  const auto details = said.substr(0, said.find('\n'));
  throw std::runtime_error(
      std::string(call) + " says " + device_.nccl->get_error_string(result) +
      (details.empty() ? "" : " (" + details + ")"));
}

}  // namespace tandem
