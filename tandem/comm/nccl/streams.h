#pragma once

#include <functional>

namespace tandem {

using StreamHandle = struct StreamOfDevice*;
using EventHandle = struct EventOfDevice*;

/// What is used of a device's streams and events. Functions, so that a device in main
/// memory can stand in for one with CUDA, which makes these in cuda_streams.h.
///
/// Any thread may call. Each throws std::runtime_error with the device's own words.
struct DeviceStreams {
  // Makes the device the calling thread's.
  std::function<void()> use_device;

  // Where the calling thread's LibTorch puts its work.
  std::function<StreamHandle()> current_stream;
  // Whether a graph is captured there: nothing runs then, and no event of the capture
  // may be asked for.
  std::function<bool()> captures;

  std::function<StreamHandle()> create_stream;
  // What lies on it still runs.
  std::function<void(StreamHandle)> destroy_stream;

  std::function<EventHandle()> create_event;
  std::function<void(EventHandle)> destroy_event;

  // The event stands for all that lies on the stream now.
  std::function<void(EventHandle, StreamHandle)> record;
  // What the stream gets from now on waits for what the event stands for now.
  std::function<void(StreamHandle, EventHandle)> wait;
  // Whether all that the event stands for has ended. Never blocks.
  std::function<bool(EventHandle)> query;
};

}  // namespace tandem
