#include "tests/comm/fake_streams.h"

#include <algorithm>
#include <utility>

namespace tandem {

namespace {

StreamHandle handle_of(const std::shared_ptr<FakeStream>& stream) {
  return reinterpret_cast<StreamHandle>(stream.get());
}

}  // namespace

std::shared_ptr<FakeStream> FakeStreams::current(int rank) {
  auto& stream = current_[rank];
  if (!stream) {
    stream = std::make_shared<FakeStream>();
    stream->host = callers_are_hosts_;
    streams_.push_back(stream);
  }
  return stream;
}

std::shared_ptr<FakeStream> FakeStreams::at(StreamHandle handle) const {
  for (const auto& [rank, stream] : current_) {
    if (handle_of(stream) == handle) {
      return stream;
    }
  }
  return created_.at(handle);
}

bool FakeStreams::step() {
  std::vector<FakeStream*> able;
  for (const auto& stream : streams_) {
    if (!stream->tasks.empty()) {
      const auto& ready = stream->tasks.front().ready;
      if (!ready || ready()) {
        able.push_back(stream.get());
      }
    }
  }
  if (able.empty()) {
    return false;
  }
  FakeStream& chosen = *able[random_() % able.size()];
  if (chosen.tasks.front().run()) {
    chosen.tasks.pop_front();
  }
  return true;
}

void FakeStreams::run_until(
    Lock& lock, const std::string& what, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (step()) {
      continue;
    }
    if (std::chrono::steady_clock::now() > end) {
      wrong(what + " did not end");
      return;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
}

void FakeStreams::record(EventHandle handle, StreamHandle on) {
  const auto event = events_.at(handle);
  const auto stream = at(on);
  const int64_t number = ++event->recorded;
  const auto reach = [event, number] {
    event->reached = std::max(event->reached, number);
    return true;
  };
  if (stream->host) {
    reach();
  } else {
    stream->tasks.push_back({nullptr, reach});
  }
}

void FakeStreams::wait(Lock& lock, StreamHandle on, EventHandle handle) {
  const auto event = events_.at(handle);
  const auto stream = at(on);
  const auto reached = [event, number = event->recorded] {
    return event->reached >= number;
  };
  if (stream->host) {
    run_until(lock, "what the host waits for", reached);
  } else {
    stream->tasks.push_back({reached, [] { return true; }});
  }
}

bool FakeStreams::query(EventHandle handle) {
  for (int steps = up_to(3); steps > 0; --steps) {
    step();
  }
  const auto& event = events_.at(handle);
  return event->reached >= event->recorded;
}

DeviceStreams FakeStreams::table(int rank) {
  const auto all = shared_from_this();
  DeviceStreams table;
  table.use_device = [] {};
  table.current_stream = [all, rank] {
    const Lock lock(all->mutex_);
    return handle_of(all->current(rank));
  };
  table.create_stream = [all] {
    const Lock lock(all->mutex_);
    const auto stream = std::make_shared<FakeStream>();
    all->streams_.push_back(stream);
    all->created_[handle_of(stream)] = stream;
    return handle_of(stream);
  };
  table.destroy_stream = [all](StreamHandle stream) {
    const Lock lock(all->mutex_);
    if (all->created_.erase(stream) == 0) {
      all->wrong("a stream was destroyed twice");
    }
  };
  table.create_event = [all] {
    const Lock lock(all->mutex_);
    const auto event = std::make_shared<Event>();
    const auto handle = reinterpret_cast<EventHandle>(event.get());
    all->events_[handle] = event;
    return handle;
  };
  table.destroy_event = [all](EventHandle event) {
    const Lock lock(all->mutex_);
    if (all->events_.erase(event) == 0) {
      all->wrong("an event was destroyed twice");
    }
  };
  table.record = [all](EventHandle event, StreamHandle on) {
    const Lock lock(all->mutex_);
    all->record(event, on);
  };
  table.wait = [all](StreamHandle on, EventHandle event) {
    Lock lock(all->mutex_);
    all->wait(lock, on, event);
  };
  table.query = [all](EventHandle event) {
    const Lock lock(all->mutex_);
    return all->query(event);
  };
  return table;
}

int FakeStreams::num_alive() const {
  return static_cast<int>(created_.size() + events_.size());
}

void FakeStreams::drop_tasks() {
  for (const auto& stream : streams_) {
    stream->tasks.clear();
  }
}

}  // namespace tandem
