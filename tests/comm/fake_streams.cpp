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
  bool ended = false;
  const auto run = [&] { ended = chosen.tasks.front().run(); };
  if (touch_) {
    touch_(run);
  } else {
    run();
  }
  if (ended) {
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

void FakeStreams::begin_capture(
    int rank, std::function<void(std::function<void()>)> note) {
  const auto capture = std::make_shared<Capture>();
  capture->note = std::move(note);
  capture->first = current(rank);
  capture->streams[capture->first] = capture->first;
  captures_[rank] = capture;
}

void FakeStreams::end_capture(int rank) {
  if (!captures_.at(rank)->apart.empty()) {
    wrong("a capture ended before what it forked came back");
  }
  captures_.erase(rank);
}

std::shared_ptr<FakeStreams::Capture> FakeStreams::capture_of(
    const StreamPtr& stream) const {
  for (const auto& [rank, capture] : captures_) {
    if (capture->streams.count(stream) > 0) {
      return capture;
    }
  }
  return nullptr;
}

bool FakeStreams::note(
    const StreamPtr& stream, std::function<void(const StreamPtr&)> put) {
  const auto capture = capture_of(stream);
  if (capture == nullptr) {
    return false;
  }
  if (stream != capture->first) {
    capture->apart.insert(stream);
  }
  capture->note(
      [put = std::move(put), twin = capture->streams.at(stream)] { put(twin); });
  return true;
}

void FakeStreams::record(EventHandle handle, StreamHandle on) {
  const auto event = events_.at(handle);
  const auto stream = at(on);
  event->capture = capture_of(stream);
  if (event->capture == nullptr) {
    put_record(event, stream);
    return;
  }
  event->captured_on = stream;
  event->in_graph = std::make_shared<Event>();
  note(
      stream, [all = shared_from_this(), event = event->in_graph](const StreamPtr& to) {
        const Lock lock(all->mutex_);
        put_record(event, to);
      });
}

void FakeStreams::put_record(const EventPtr& event, const StreamPtr& stream) {
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
  if (event->capture != nullptr) {
    wait_in_capture(stream, event);
  } else if (capture_of(stream) != nullptr) {
    wrong("a captured stream waits for what is not captured");
  } else {
    put_wait(lock, stream, event);
  }
}

// The stream is part of the capture from then on.
void FakeStreams::wait_in_capture(const StreamPtr& stream, const EventPtr& event) {
  auto& capture = *event->capture;
  if (capture_of(event->captured_on) != event->capture) {
    wrong("a wait for an event of a capture that has ended");
    return;
  }
  auto& twin = capture.streams[stream];
  if (twin == nullptr) {
    twin = std::make_shared<FakeStream>();
    streams_.push_back(twin);
  }
  note(
      stream, [all = shared_from_this(), event = event->in_graph](const StreamPtr& on) {
        Lock lock(all->mutex_);
        all->put_wait(lock, on, event);
      });
  if (stream == capture.first) {
    capture.apart.erase(event->captured_on);
  }
}

void FakeStreams::put_wait(Lock& lock, const StreamPtr& stream, const EventPtr& event) {
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
  if (event->capture != nullptr) {
    wrong("somebody asked for an event of a capture");
  }
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
  table.captures = [all, rank] {
    const Lock lock(all->mutex_);
    return all->capture_of(all->current(rank)) != nullptr;
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
