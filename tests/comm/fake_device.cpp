#include "tests/comm/fake_device.h"

#include <utility>

#include "tests/comm/fake_nccl.h"
#include "tests/comm/fake_streams.h"

namespace tandem {

FakeDevices::FakeDevices(uint64_t seed, Caller caller, Touch touch)
    : streams_(std::make_shared<FakeStreams>(
          seed, caller == Caller::host, std::move(touch))),
      nccl_(std::make_shared<FakeNccl>(streams_)) {}

FakeDevices::~FakeDevices() {
  const auto lock = streams_->lock();
  streams_->drop_tasks();
  nccl_->drop_comms();
}

NcclDevice FakeDevices::device(int rank, at::Device where) {
  return {
      std::make_shared<NcclApi>(nccl_->table(rank)),
      std::make_shared<DeviceStreams>(streams_->table(rank)), where};
}

void FakeDevices::run(
    int rank, std::function<void()> kernel, std::function<bool()> ready) {
  const auto lock = streams_->lock();
  const auto stream = streams_->current(rank);
  const FakeTask task{std::move(ready), [kernel = std::move(kernel)] {
                        kernel();
                        return true;
                      }};
  const bool noted =
      streams_->note(stream, [all = streams_, task](const auto& in_graph) {
        const auto again = all->lock();
        in_graph->tasks.push_back(task);
      });
  if (!noted) {
    stream->tasks.push_back(task);
  }
}

std::function<void()> FakeDevices::capture(
    int rank, const std::function<void()>& work) {
  auto graph = std::make_shared<std::vector<std::function<void()>>>();
  capture(rank, work, [graph](std::function<void()> put) {
    graph->push_back(std::move(put));
  });
  return [graph] {
    for (const auto& put : *graph) {
      put();
    }
  };
}

void FakeDevices::capture(
    int rank, const std::function<void()>& work,
    std::function<void(std::function<void()>)> note) {
  {
    const auto lock = streams_->lock();
    streams_->begin_capture(rank, std::move(note));
  }
  work();
  const auto lock = streams_->lock();
  streams_->end_capture(rank);
}

void FakeDevices::synchronize(int rank) {
  auto lock = streams_->lock();
  const auto stream = streams_->current(rank);
  streams_->run_until(lock, "rank " + std::to_string(rank) + "'s stream", [&] {
    return stream->tasks.empty();
  });
}

void FakeDevices::report(int rank, NcclResult error) {
  const auto lock = streams_->lock();
  nccl_->report(rank, error);
}

void FakeDevices::tell_of_aborts() {
  const auto lock = streams_->lock();
  nccl_->tell_of_aborts();
}

int FakeDevices::num_aborted() const {
  const auto lock = streams_->lock();
  return nccl_->num_aborted();
}

int FakeDevices::num_alive() const {
  const auto lock = streams_->lock();
  return streams_->num_alive() + nccl_->num_alive();
}

std::vector<std::string> FakeDevices::misuse() const {
  const auto lock = streams_->lock();
  return streams_->misuse();
}

}  // namespace tandem
